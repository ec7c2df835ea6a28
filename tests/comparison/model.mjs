// A double of a model provider (OpenAI Chat Completions, streamed or not) that answers at once with one word.
// Prints its port.
import http from "node:http";

const usage = { prompt_tokens: 10, completion_tokens: 1, total_tokens: 11 };

function whole(response, model) {
  const message = { role: "assistant", content: "Done." };
  const choices = [{ index: 0, message, finish_reason: "stop" }];
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify({ id: "c", object: "chat.completion", created: 1, model, choices, usage }));
}

function streamed(response, model) {
  const chunk = (choices, more = {}) => {
    const body = { id: "c", object: "chat.completion.chunk", created: 1, model, choices, ...more };
    return `data: ${JSON.stringify(body)}\n\n`;
  };
  response.setHeader("content-type", "text/event-stream");
  response.end(
    chunk([{ index: 0, delta: { role: "assistant", content: "Done." }, finish_reason: null }]) +
      chunk([{ index: 0, delta: {}, finish_reason: "stop" }]) +
      chunk([], { usage }) +
      "data: [DONE]\n\n",
  );
}

const server = http.createServer((request, response) => {
  const pieces = [];
  request.on("data", (piece) => pieces.push(piece));
  request.on("end", () => {
    if (request.method === "GET") {
      response.setHeader("content-type", "application/json");
      return response.end(JSON.stringify({ object: "list", data: [{ id: "fake", object: "model" }] }));
    }
    const received = JSON.parse(Buffer.concat(pieces).toString());
    return (received.stream ? streamed : whole)(response, received.model);
  });
});
server.keepAliveTimeout = 600_000;
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
