const LOOKING = new Set(["read", "list", "glob", "grep"].map((name) => `file-system__${name}`));

export function register(api) {
  // Further out than others: what is hidden here, they never see.
  api.pipeline.register(
    "step",
    (ctx) => {
      ctx.toolCatalog = ctx.toolCatalog.filter(({ name }) => LOOKING.has(name));
      return ctx.next();
    },
    { priority: -10 },
  );
}
