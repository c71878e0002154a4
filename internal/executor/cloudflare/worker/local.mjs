// Runs the built Worker on this machine: the real runtime by Miniflare, its containers on a Docker Engine.
//
//   node local.mjs CONFIG
//
// CONFIG is JSON, as cloudflaretest writes it. It prints {"url"} once it listens. Each line on its standard
// input is a command in JSON, answered by a line: "reset" throws the Worker and its Durable Objects out of memory,
// as a deployment does; {"query"} asks the database. The end of its standard input ends it, and its containers.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { convertV4MiniflareOptions, Miniflare } from "miniflare";

const config = JSON.parse(process.argv[2]);

const options = convertV4MiniflareOptions({
  workers: [
    {
      name: config.name, // of which its containers are called
      modules: true,
      script: readFileSync(config.script, "utf8"),
      // From 2026-04-01 on containers have a process namespace of their own.
      compatibilityDate: "2026-10-01",
      bindings: { ...(config.key === "" ? {} : { SIGNING_KEY: config.key }), ...(config.older ? { SIGNING_KEY_OLDER: config.older } : {}), ...(config.check ? { CHECK_MS: config.check } : {}), INSTANCE: config.instance },
      d1Databases: { DB: config.name },
      r2Buckets: { STATE: config.name },
      durableObjects: { SANDBOX: { className: "Sandbox", useSQLite: true, container: { imageName: config.image } } },
    },
  ],
  host: "127.0.0.1",
  port: 0,
  containerEngine: { localDocker: { socketPath: config.engine, containerEgressInterceptorImage: config.sidecar } },
  defaultPersistRoot: config.state,
});
const server = new Miniflare(options);
const url = await server.ready;
options.port = Number(url.port); // a reset keeps the address
say({ url: String(url) });

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  if (command.query) {
    const { DB } = await server.getBindings(config.name);
    say((await DB.prepare(command.query).all()).results);
    continue;
  }
  if (command !== "reset") throw new Error(`there is no command ${line}`);
  await server.setOptions(options);
  say({ url: String(await server.ready) });
}
await server.dispose();

function say(answer) {
  process.stdout.write(JSON.stringify(answer) + "\n");
}
