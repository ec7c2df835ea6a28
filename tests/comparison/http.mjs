// Requests over kept connections.
import http from "node:http";

const TIMEOUT_MS = 300_000;
const shared = new http.Agent({ keepAlive: false });

/** Sends a request; the answer is its status and body. */
export function call({ url, method = "POST", headers = {}, body }, agent = shared) {
  return new Promise((resolve, reject) => {
    const length = body === undefined ? {} : { "content-length": Buffer.byteLength(body) };
    const request = http.request(url, { method, agent, headers: { ...headers, ...length } }, (response) => {
      const pieces = [];
      response.on("data", (piece) => pieces.push(piece));
      response.on("end", () => resolve({ status: response.statusCode, body: Buffer.concat(pieces).toString() }));
      response.on("error", reject);
    });
    request.setTimeout(TIMEOUT_MS, () => request.destroy(new Error("no answer in time")));
    request.on("error", reject);
    request.end(body);
  });
}

export const connections = (count) => new http.Agent({ keepAlive: true, maxSockets: count });
