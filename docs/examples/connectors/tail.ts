// A connector for goondan: each line that is added to a file becomes an event.
//
//     kind: Connection
//     spec:
//       connectorRef: Connector/tail
//       config: {file: /var/log/orders.log}
//
// Lines of JSON come on stdin and go out on stdout; see docs/connectors/program.md.
// Runs under bun, deno, and node from 22.6 on.

import { Buffer } from "node:buffer";
import { open } from "node:fs/promises";
import process from "node:process";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";

type Answer =
  | { type: "accepted"; id: string; duplicate: boolean }
  | { type: "refused"; id: string; code: string; message: string; retry: boolean };
type Start = { type: "start"; config: { file: string } };
type Heard = Start | Answer | { type: "shutdown" };

const waiting = new Map<string, (answer: Answer) => void>();

function say(message: object): void {
  process.stdout.write(JSON.stringify(message) + "\n");
}

function hear(heard: Heard): void {
  if (heard.type === "start") void follow(heard.config.file);
  else if (heard.type === "shutdown") process.exit(0);
  else waiting.get(heard.id)?.(heard);
}

// Sends an event until it is taken, or can never be.
async function handIn(event: { type: "event"; id: string; input: string }): Promise<void> {
  for (;;) {
    const answer = await new Promise<Answer>((resolve) => {
      waiting.set(event.id, resolve);
      say(event);
    });
    waiting.delete(event.id);
    if (answer.type === "accepted") return;
    console.error(`${event.id} was refused: ${answer.message}`);
    if (!answer.retry) return;
    await pause(1000);
  }
}

async function follow(path: string): Promise<void> {
  const file = await open(path);
  say({ type: "status", ready: true, detail: `following ${path}` });
  const buffer = Buffer.alloc(64 * 1024);
  for (let offset = 0; ; ) {
    const { bytesRead } = await file.read(buffer, 0, buffer.length, offset);
    const end = buffer.subarray(0, bytesRead).indexOf("\n");
    if (end < 0) {
      await pause(200);
      continue;
    }
    const input = buffer.toString("utf8", 0, end);
    // The place in the file is the id: whoever reads it again hands in nothing twice.
    const event = { type: "event", id: `${path}:${offset}`, name: "line", input } as const;
    if (input.trim() !== "") await handIn(event);
    offset += end + 1;
  }
}

createInterface({ input: process.stdin })
  .on("line", (line: string) => hear(JSON.parse(line)))
  .on("close", () => process.exit(0));
