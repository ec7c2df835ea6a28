// What a Python file defines, line by line. For bun, deno, or node 22.6 and newer.
import { readFileSync } from "node:fs";
import { join } from "node:path";

interface Call {
  input: { path: string };
  projectRoot: string;
}

export const handlers = {
  async of({ input, projectRoot }: Call): Promise<string> {
    const lines = readFileSync(join(projectRoot, input.path), "utf8").split("\n");
    const defined = lines.flatMap((line: string, at: number) =>
      /^\s*(def|class) /.test(line) ? [`${at + 1}: ${line.trim()}`] : [],
    );
    return defined.join("\n");
  },
};
