// Runs the built Worker on this machine: Miniflare provides the real runtime, and a Docker Engine runs the containers.
//
//   node local.mjs CONFIG
//
// CONFIG is JSON from cloudflaretest. The program prints {"url"} once it listens. Each line of standard input is a
// command in JSON, and the program answers each with a line: "reset" removes the Worker and its Durable Objects from
// memory, as a deployment does; {"query"} queries the database. At the end of standard input the program removes its
// containers and ends.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { convertV4MiniflareOptions, Miniflare } from "miniflare";

import { Engine } from "./engine.mjs";
import { outsideAt } from "./outside.mjs";

const config = JSON.parse(process.argv[2]);

const options = convertV4MiniflareOptions({
  workers: [
    {
      name: config.name, // part of the names of its containers
      modules: true,
      script: readFileSync(config.script, "utf8"),
      // From 2026-04-01 on, each container has its own process namespace.
      compatibilityDate: "2026-10-01",
      bindings: { ...(config.key === "" ? {} : { SIGNING_KEY: config.key }), ...(config.older ? { SIGNING_KEY_OLDER: config.older } : {}), ...(config.check ? { CHECK_MS: config.check } : {}), INSTANCE: config.instance },
      d1Databases: { DB: config.name },
      r2Buckets: { STATE: config.name },
      ...outsideAt(config.outside),
      durableObjects: { SANDBOX: { className: "Sandbox", useSQLite: true, container: { imageName: config.image } } },
    },
  ],
  host: "127.0.0.1",
  port: 0,
  containerEngine: { localDocker: { socketPath: config.engine, containerEgressInterceptorImage: config.sidecar } },
  defaultPersistRoot: config.state,
});
const engine = new Engine(config.engine);
await engine.watch();
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
  if (command !== "reset") throw new Error(`unknown command ${line}`);
  await server.setOptions(options);
  say({ url: String(await server.ready) });
}
await server.dispose();
await engine.remove(config.name);
engine.close();

function say(answer) {
  process.stdout.write(JSON.stringify(answer) + "\n");
}
