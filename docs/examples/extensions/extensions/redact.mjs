const ADDRESS = /[\w.+-]+@[\w-]+\.[\w.-]+/g;

export function register(api, config) {
  api.pipeline.register("toolCall", async (ctx) => {
    const result = await ctx.next();
    if (result.status !== "ok") return result;
    const output = result.output.replace(ADDRESS, config.instead);
    if (output !== result.output) api.logger.info(`${ctx.toolName} returned addresses`);
    return { ...result, output };
  });
}
