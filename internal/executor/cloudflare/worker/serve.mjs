// Runs Workers on this machine as they are deployed: the real runtime by Miniflare, one for each Worker, its
// containers on a Docker Engine.
//
//   node serve.mjs CONFIG
//
// CONFIG is JSON, as localapi/miniflare writes it. Each line on the standard input is a command, answered by a line:
// {"deploy":{…}} runs a Worker, or its next version, with what it held, and is answered with {"url"};
// {"remove":"NAME"} ends one with its containers and all that it holds, and is answered with {}; {"query":{…}} asks a
// database of one, and is answered with {"rows"}. A command that fails is answered with {"error"}. The end of the
// standard input ends them all with their containers.

import { rm } from "node:fs/promises";
import { request } from "node:http";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { convertV4MiniflareOptions, Miniflare } from "miniflare";

const config = JSON.parse(process.argv[2]);
const socket = config.engine.replace(/^unix:\/\//, "");
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
    { className, useSQLite: true, container: { imageName: worker.image } },
  ]);
  return {
    workers: [
      {
        name: worker.name, // of which its containers are called
        modules: true,
        script: worker.script,
        compatibilityDate: worker.compatibility_date,
        bindings: worker.variables,
        durableObjects: Object.fromEntries(durableObjects),
        d1Databases: worker.databases,
        r2Buckets: worker.buckets,
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
  // workerd leaves containers behind.
  const filters = encodeURIComponent(JSON.stringify({ name: [`^/workerd-${name}-`] }));
  for (const { Id } of await engine("GET", `/containers/json?all=true&filters=${filters}`)) {
    await engine("DELETE", `/containers/${Id}?force=true`);
  }
}

// engine calls the Docker Engine. What is gone already is no failure.
function engine(method, path) {
  return new Promise((resolve, reject) => {
    const call = request({ socketPath: socket, method, path, timeout: 60_000 }, (answer) => {
      let body = "";
      answer.setEncoding("utf8");
      answer.on("data", (part) => (body += part));
      answer.on("error", reject);
      answer.on("end", () => {
        const gone = method === "DELETE" && [404, 409].includes(answer.statusCode);
        if (answer.statusCode >= 300 && !gone) reject(new Error(`the engine answers ${method} ${path} with ${answer.statusCode}: ${body}`));
        else resolve(body === "" || gone ? null : JSON.parse(body));
      });
    });
    call.on("timeout", () => call.destroy(new Error(`the engine did not answer ${method} ${path} in time`)));
    call.on("error", reject);
    call.end();
  });
}

function say(answer) {
  process.stdout.write(JSON.stringify(answer) + "\n");
}
