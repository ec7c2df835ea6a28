// The work as a virtual object of Restate: one recorded step, which asks the model, and the history as its state.
import * as restate from "@restatedev/restate-sdk";

const model = process.env.MODEL;

async function ask(messages) {
  const response = await fetch(`${model}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "fake", messages }),
  });
  if (!response.ok) throw new Error(`the model answered ${response.status}`);
  return (await response.json()).choices[0].message.content;
}

const conversation = restate.object({
  name: "conversation",
  handlers: {
    turn: async (ctx, text) => {
      const history = (await ctx.get("history")) ?? [];
      history.push({ role: "user", content: text });
      const reply = await ctx.run("model", () => ask(history));
      history.push({ role: "assistant", content: reply });
      ctx.set("history", history);
      return reply;
    },
    history: restate.handlers.object.shared(async (ctx) => (await ctx.get("history")) ?? []),
  },
});

restate.serve({ services: [conversation], port: Number(process.env.PORT) });
