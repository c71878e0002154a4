// The Worker of one environment. It lets in who has its key, and passes each request on to the Durable Object
// of its sandbox:
//
//   GET    /v1/instance                                   who answers here
//   GET    /v1/instances/I/ledgers/L/sandboxes            lists them, after the id in ?after; wakes nothing
//   PUT    /v1/instances/I/ledgers/L/sandboxes/S          makes and starts it from its settings, or finds it made
//   GET    …                                              how it stands; wakes nothing
//   DELETE …                                              ends it, and forgets it but for its periods
//   POST   …/sleep, …/wake
//   POST   …/renew                                        it was used, and these are its times
//   GET    …/channel?nonce=N                              a WebSocket to the guest
//   GET    …/usage                                        what the sandbox uses
//   GET    …/data                                         what lies in /data, as a tar stream
//   GET    …/periods                                      when it ran, also once it was killed
//
// Answers are JSON; those that are no success hold code, reason and message as sandbox/errors.go has them.

import { Copy } from "./copy";
import type { Env } from "./env";
import { asFailure, Failure, readOff } from "./errors";
import { parseLedger, parsePath } from "./path";
import { authenticate, keysOf } from "./signature";

export { Sandbox } from "./sandbox";

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    try {
      await authenticate(request, keysOf(env), Date.now());
      if (new URL(request.url).pathname === "/v1/instance") return Response.json({ instance: env.INSTANCE, keys: env.SIGNING_KEY_DIGEST });
      return await forward(request, env);
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
    // The object failed or was reset, such as by a deployment: what it had begun may be done or not.
    throw new Failure("unknown_outcome", `sandbox ${path.sandbox}: its Durable Object broke off: ${asFailure(error).message}`);
  }
}

function checkInstance({ instance }: { instance: string }, env: Env): void {
  if (instance !== env.INSTANCE) {
    throw new Failure("unavailable", `this is instance ${env.INSTANCE}, not ${instance}`, "other_backend_instance");
  }
}
