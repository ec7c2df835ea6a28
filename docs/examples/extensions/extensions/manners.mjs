export function register(api) {
  api.pipeline.register("turn", async (ctx) => {
    const { questions = 0 } = (await api.state.get()) ?? {};
    await api.state.set({ questions: questions + 1 });
    ctx.emitMessageEvent({
      type: "append",
      message: { data: { role: "system", content: `This is question ${questions + 1} of this guest.` } },
    });
    const result = await ctx.next();
    if (result.finishReason !== "text_response") return result;
    const message = result.responseMessage;
    const content = `${message.data.content} Good night!`;
    return { ...result, responseMessage: { ...message, data: { ...message.data, content } } };
  });
}
