// A tool in TypeScript, for bun, deno, or node 22.6 and newer.
interface Call {
  input: { title: string };
}

export const handlers = {
  async of({ input }: Call): Promise<string> {
    return input.title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
  },
};
