// A PostgreSQL server with a database of its own, which root runs as the user `postgres`.
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";

import { freePort, start, until } from "./processes.mjs";

function programs() {
  const debian = "/usr/lib/postgresql";
  const versions = fs.existsSync(debian) ? fs.readdirSync(debian) : [];
  const places = [...versions.map((it) => path.join(debian, it, "bin")), ...process.env.PATH.split(":")];
  const found = places.find((place) => fs.existsSync(path.join(place, "initdb")));
  if (!found) throw new Error("there is no PostgreSQL server: install postgresql");
  return found;
}

export async function runningPostgres(dir) {
  const [bin, data, port] = [programs(), path.join(dir, "data"), await freePort()];
  fs.mkdirSync(dir, { recursive: true });
  const isRoot = process.getuid() === 0;
  if (isRoot) {
    execFileSync("chown", ["postgres", dir]);
    // The directory above it belongs to root.
    fs.chmodSync(path.dirname(dir), 0o711);
  }
  const as = (program, args) =>
    isRoot
      ? ["setpriv", ["--reuid=postgres", "--regid=postgres", "--clear-groups", "--", path.join(bin, program), ...args]]
      : [path.join(bin, program), args];
  const made = as("initdb", ["--auth=trust", "--encoding=UTF8", "--locale=C", "--username=dbos", "--pgdata", data]);
  execFileSync(...made, { stdio: ["ignore", "ignore", "pipe"] });
  const settings = [`port=${port}`, `unix_socket_directories=${dir}`, "listen_addresses=127.0.0.1"];
  const [program, args] = as("postgres", ["-D", data, ...settings.flatMap((it) => ["-c", it])]);
  // `setpriv` executes the server, so that this is the server's process.
  const pid = start(program, args, { log: path.join(path.dirname(dir), "postgres-log"), cwd: "/" });
  const psql = (statement) =>
    execFileSync(path.join(bin, "psql"), ["-h", "127.0.0.1", "-p", port, "-U", "dbos", "-d", "postgres", "-c", statement], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe"],
    });
  await until("PostgreSQL accepts connections", 60, async () => psql("SELECT 1"));
  psql("CREATE DATABASE conversation");
  const version = execFileSync(path.join(bin, "postgres"), ["--version"], { encoding: "utf8" });
  return {
    pid,
    data,
    url: `postgresql://dbos@127.0.0.1:${port}/conversation`,
    version: version.replace("postgres (PostgreSQL)", "PostgreSQL").trim(),
  };
}
