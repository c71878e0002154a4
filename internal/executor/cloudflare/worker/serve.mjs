// Runs deployed Workers on this machine. Each Worker has its own Miniflare, which provides the real runtime. A Docker
// Engine runs the containers.
//
//   node serve.mjs CONFIG
//
// CONFIG is JSON from localapi/miniflare. Each line of standard input is a command, and the program answers each with a
// line:
//
//   {"deploy":{…}}     runs a Worker, or its next version with the same data; the answer is {"url"}
//   {"remove":"NAME"}  stops a Worker and deletes its containers and data; the answer is {}
//   {"query":{…}}      queries a database of a Worker; the answer is {"rows"}
//
// The answer to a failed command is {"error"}. At the end of standard input the program stops all Workers and removes
// their containers.

import { rm } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { convertV4MiniflareOptions, Miniflare } from "miniflare";

import { Engine } from "./engine.mjs";
import { outsideAt } from "./outside.mjs";

const config = JSON.parse(process.argv[2]);
const engine = new Engine(config.engine);
await engine.watch();
const running = new Map(); // by name: the server, and its port

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  try {
    say(await carryOut(command));
  } catch (error) {
    say({ error: String(error) });
  }
}
for (const name of [...running.keys()]) await stop(name);
engine.close();

function carryOut({ deploy: worker, remove: name, query: question }) {
  if (worker) return deploy(worker);
  return question ? query(question) : remove(name);
}

async function deploy(worker) {
  const old = running.get(worker.name);
  const options = convertV4MiniflareOptions(optionsOf(worker, old?.port ?? 0));
  if (old !== undefined) {
    await old.server.setOptions(options);
    return { url: String(await old.server.ready) };
  }
  const server = new Miniflare(options);
  try {
    const url = await server.ready;
    running.set(worker.name, { server, port: Number(url.port) });
    return { url: String(url) };
  } catch (error) {
    await server.dispose();
    throw error;
  }
}

function optionsOf(worker, port) {
  const durableObjects = Object.entries(worker.classes).map(([binding, className]) => [
    binding,
    {
      className,
      useSQLite: true,
      container: worker.image ? { imageName: worker.image } : { images: worker.images ?? [] },
    },
  ]);
  return {
    workers: [
      {
        name: worker.name, // part of the names of its containers
        modules: true,
        script: worker.script,
        compatibilityDate: worker.compatibility_date,
        bindings: worker.variables,
        durableObjects: Object.fromEntries(durableObjects),
        d1Databases: worker.databases,
        r2Buckets: worker.buckets,
        ...outsideAt(config.outside),
      },
    ],
    host: "127.0.0.1",
    port,
    containerEngine: { localDocker: { socketPath: config.engine, containerEgressInterceptorImage: config.sidecar } },
    defaultPersistRoot: join(config.state, worker.name),
  };
}

async function query({ worker, binding, statement, params }) {
  const { server } = running.get(worker);
  const bindings = await server.getBindings(worker);
  const { results } = await bindings[binding].prepare(statement).bind(...(params ?? [])).all();
  return { rows: results };
}

async function remove(name) {
  await stop(name);
  await rm(join(config.state, name), { recursive: true, force: true });
  return {};
}

async function stop(name) {
  const { server } = running.get(name) ?? {};
  running.delete(name);
  await server?.dispose();
  await engine.remove(name);
}

function say(answer) {
  process.stdout.write(JSON.stringify(answer) + "\n");
}
