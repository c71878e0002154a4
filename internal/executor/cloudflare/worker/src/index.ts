// The Worker of one environment, or of several environments of a ledger that share it. It authenticates each request
// with its key, and passes requests about a sandbox to its Durable Object. The requests are:
//
//   GET    /v1/instance                                   names this instance and its image
//   GET    /v1/instances/I/ledgers/L/sandboxes            lists sandboxes after the id in ?after; wakes none
//   PUT    /v1/instances/I/ledgers/L/sandboxes/S          creates and starts it from its settings; idempotent
//   GET    …                                              returns its status; starts nothing
//   DELETE …                                              kills it; only its periods remain
//   POST   …/sleep, …/wake                                stops or starts its container
//   POST   …/renew                                        records a use and sets its time limits
//   GET    …/channel?nonce=N                              opens a WebSocket to the guest
//   GET    …/usage                                        returns its resource usage
//   GET    …/data                                         returns its /data as a tar stream
//   GET    …/periods                                      returns when it ran, even after its kill
//   GET    /v1/instances/I/ledgers/L/networks             lists the environments with a restricted network
//   PUT    /v1/instances/I/ledgers/L/networks/E           sets its rules, which take effect within seconds
//   GET    …                                              returns its rules
//   GET    …/attempts?run=R&line=N                        returns what its sandboxes tried to reach, after a log line
//   GET    /v1/instances/I/ledgers/L/environments         lists the environments that share this Worker
//   PUT    /v1/instances/I/ledgers/L/environments/E       adds one, or changes its image
//   DELETE …                                              removes one that has no sandboxes
//   DELETE /v1/instances/I/ledgers/L/environments         closes an empty ledger, before this Worker is deleted
//   PUT    /v1/instances/I/ledgers/L/llm/E                sets its LLM routes with their keys, and what calls may cost
//   GET    …/calls?run=R&line=N                           returns its LLM calls after the last line that the ledger has
//
// Answers are JSON. An error has code, reason and message, as in sandbox/errors.go.

import { Copy } from "./copy";
import type { Env } from "./env";
import { Environments, parseImage } from "./environments";
import { asFailure, Failure, readOff } from "./errors";
import { Book } from "./llm/book";
import { parseLLMSettings } from "./llm/settings";
import { Networks, parseEgress } from "./networks";
import {
  type EnvironmentPath, type LLMPath, type NetworkPath,
  parseEnvironment, parseLedger, parseLLM, parseNetwork, parsePath,
} from "./path";
import { authenticate, keysOf, type Signed, wholeBody } from "./signature";

export { Outbound } from "./outbound";
export { Sandbox } from "./sandbox";

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    try {
      const signed = await authenticate(request, keysOf(env), Date.now());
      if (new URL(request.url).pathname === "/v1/instance") {
        return Response.json({
          instance: env.INSTANCE,
          keys: env.SIGNING_KEY_DIGEST,
          image: env.IMAGE,
          prepared: env.IMAGE_PREPARED,
          policy: env.SCHEDULING_POLICY,
          images: imagesOf(env),
        });
      }
      const environment = parseEnvironment(request);
      if (environment !== null) return await serveEnvironment(request, environment, signed, env);
      const llm = parseLLM(request);
      if (llm !== null) return await serveLLM(request, llm, signed, env);
      const network = parseNetwork(request);
      return await (network === null ? forward(request, env) : serveNetwork(request, network, signed, env));
    } catch (error) {
      await readOff(request);
      return asFailure(error).response();
    }
  },
} satisfies ExportedHandler<Env>;

async function forward(request: Request, env: Env): Promise<Response> {
  const all = parseLedger(request);
  if (all !== null && request.method === "GET") {
    checkInstance(all, env);
    const page = await new Copy(env.DB).list(all.ledger, new URL(request.url).searchParams.get("after") ?? "");
    return Response.json({ ...page, keys: env.SIGNING_KEY_DIGEST });
  }
  const path = parsePath(request);
  checkInstance(path, env);
  const stub = env.SANDBOX.get(env.SANDBOX.idFromName(`${path.ledger}/${path.sandbox}`));
  try {
    return await stub.fetch(request);
  } catch (error) {
    // The object failed, or was reset, for example by a deployment. The request may have taken effect or not.
    const why = `its Durable Object failed or was reset: ${asFailure(error).message}`;
    throw new Failure("unknown_outcome", `sandbox ${path.sandbox}: ${why} (retry)`);
  }
}

// serveEnvironment answers requests about the environments that share this Worker.
async function serveEnvironment(request: Request, path: EnvironmentPath, signed: Signed, env: Env): Promise<Response> {
  checkInstance(path, env);
  const environments = new Environments(env.DB);
  const { ledger, environment } = path;
  switch (`${request.method} ${environment === "" ? "all" : "one"}`) {
    case "GET all":
      return Response.json(await environments.list(ledger));
    case "DELETE all":
      return Response.json({ closed: await environments.close(ledger, Date.now()) });
    case "PUT one": {
      const image = parseImage(await wholeBody(request, signed));
      return Response.json({ closed: !(await environments.put(ledger, environment, image, Date.now())) });
    }
    case "DELETE one": {
      const sandbox = await new Copy(env.DB).one(ledger, environment);
      if (sandbox !== null) throw new Failure("conflict", `the environment still has sandboxes, such as ${sandbox}: kill them first`);
      for (const table of [new Networks(env.DB), new Book(env.DB), new Copy(env.DB)]) await table.remove(ledger, environment);
      await environments.remove(ledger, environment, Date.now());
      return Response.json({});
    }
    default:
      throw new Failure("invalid", `environments do not support ${request.method}`);
  }
}

// imagesOf returns the names of the images that starts may choose from.
function imagesOf(env: Env): string[] {
  const prefix = "START_IMAGE_";
  return Object.keys(env).filter((name) => name.startsWith(prefix)).map((name) => name.slice(prefix.length));
}

// serveNetwork answers requests about restricted networks. It wakes no Durable Object.
async function serveNetwork(request: Request, path: NetworkPath, signed: Signed, env: Env): Promise<Response> {
  checkInstance(path, env);
  const networks = new Networks(env.DB);
  const { ledger, environment } = path;
  switch (`${request.method} ${path.verb}`) {
    case "GET list":
      return Response.json({ environments: await networks.list(ledger) });
    case "PUT rules":
      await networks.put(ledger, environment, parseEgress(await wholeBody(request, signed)), Date.now());
      return Response.json({});
    case "GET rules":
      return Response.json({ egress: await networks.rules(ledger, environment) });
    case "GET attempts": {
      const after = new URL(request.url).searchParams;
      const lines = await networks.lines(ledger, environment, Number(after.get("run")), Number(after.get("line")));
      return Response.json({ lines });
    }
    default:
      throw new Failure("invalid", `a restricted network does not support ${request.method} ${path.verb}`);
  }
}

// serveLLM answers requests about LLM routes. The journal may have a running call whose Durable Object was lost. So
// serveLLM asks the object of each such sandbox to settle the calls that it does not know.
async function serveLLM(request: Request, path: LLMPath, signed: Signed, env: Env): Promise<Response> {
  checkInstance(path, env);
  const book = new Book(env.DB);
  const { ledger, environment } = path;
  switch (`${request.method} ${path.verb}`) {
    case "PUT routes": {
      const { digest, settings } = parseLLMSettings(await wholeBody(request, signed));
      await book.put(ledger, environment, digest, settings, keysOf(env), Date.now());
      return Response.json({});
    }
    case "GET calls": {
      const after = new URL(request.url).searchParams;
      const read = () => book.page(ledger, environment, Number(after.get("run")), Number(after.get("line")));
      const page = await read();
      if (page.running.length === 0) return Response.json(page);
      const asked = page.running.slice(0, maxAsked).map(async (sandbox) => {
        await env.SANDBOX.get(env.SANDBOX.idFromName(`${ledger}/${sandbox}`)).tidyCalls(ledger, environment, sandbox);
      });
      await Promise.allSettled(asked); // the next page retries failures
      return Response.json(await read());
    }
    default:
      throw new Failure("invalid", `LLM routes do not support ${request.method} ${path.verb}`);
  }
}

// maxAsked is the maximum number of Durable Objects that a page of calls asks. A request to a Worker may make 1,000
// subrequests.
const maxAsked = 100;

function checkInstance({ instance }: { instance: string }, env: Env): void {
  if (instance !== env.INSTANCE) {
    const why = `the request is for instance ${instance}, but this is ${env.INSTANCE}`;
    throw new Failure("unavailable", why, "other_backend_instance");
  }
}
