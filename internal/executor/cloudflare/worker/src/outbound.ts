// Outgoing requests of sandboxes with a restricted network. The runtime decrypts TLS, and passes each HTTP and HTTPS
// request of a container to this entrypoint. Other traffic does not leave a container without internet.

import { WorkerEntrypoint } from "cloudflare:workers";

import type { Ending, Target } from "./attempts";
import type { Env } from "./env";
import { text } from "./errors";
import { modelsHost } from "./llm/calls";
import type { Refusal } from "./policy";

// Origin identifies the sandbox that sends the requests.
export interface Origin {
  ledger: string;
  sandbox: string;
}

// reasonHeader tells programs in the sandbox that this Worker answered instead of the host, and why.
const reasonHeader = "X-Sandbox-Gateway";

export class Outbound extends WorkerEntrypoint<Env, Origin> {
  override async fetch(request: Request): Promise<Response> {
    const { ledger, sandbox } = this.ctx.props;
    const object = this.env.SANDBOX.get(this.env.SANDBOX.idFromName(`${ledger}/${sandbox}`));
    const target = targetOf(request);
    let id: string;
    try {
      if (target.host === modelsHost && target.protocol === "http") return await object.callModel(request);
      const decision = await object.decide(target);
      if ("refusal" in decision) return inPlace(403, decision.refusal);
      id = decision.id;
    } catch (error) {
      const detail = `the sandbox's Durable Object does not answer: ${text(error)}`;
      return inPlace(503, { reason: "unavailable", detail });
    }
    const sent = lengthOf(request.headers);
    const end = (ending: Ending) => this.ctx.waitUntil(object.attemptEnded(id, ending).catch(report));
    try {
      // The sandbox itself follows redirects, and no cache may answer instead of the host.
      const response = await fetch(request, { redirect: "manual", cache: "no-store" });
      await object.attemptReached(id).catch(report);
      return counted(response, (received) => end({ sent, received }));
    } catch (error) {
      const failure = { reason: "connect_failed", detail: text(error) };
      end({ failure, sent, received: 0 });
      return inPlace(502, failure);
    }
  }
}

function targetOf(request: Request): Target {
  const url = new URL(request.url);
  const protocol = url.protocol === "https:" ? "tls" : "http";
  const port = url.port === "" ? (protocol === "tls" ? 443 : 80) : Number(url.port);
  return { protocol, host: url.hostname, port, upgrade: request.headers.get("Upgrade")?.trim() ?? "" };
}

// counted returns a response and reports its size in bytes: its Content-Length or, for a stream without one, the bytes
// passed once the stream has ended. An encoded stream without Content-Length counts as 0: it is passed on unread.
function counted(response: Response, end: (received: number) => void): Response {
  const { body, headers } = response;
  const encoded = (headers.get("Content-Encoding") ?? "identity") !== "identity";
  if (body === null || encoded || response.webSocket !== null || headers.has("Content-Length")) {
    end(lengthOf(headers));
    return response;
  }
  let received = 0;
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>({
    transform(piece, controller) {
      received += piece.length;
      controller.enqueue(piece);
    },
  });
  body.pipeTo(writable).then(() => end(received), () => end(received)); // the sandbox sees the error itself
  return new Response(readable, response);
}

function lengthOf(headers: Headers): number {
  const length = Number(headers.get("Content-Length") ?? 0);
  return Number.isSafeInteger(length) && length > 0 ? length : 0;
}

// inPlace answers instead of a host.
function inPlace(status: number, { reason, detail }: Refusal): Response {
  return new Response(`sandbox gateway: ${detail} (${reason})\n`, { status, headers: { [reasonHeader]: reason } });
}

function report(error: unknown): void {
  console.error(`log an attempt: ${text(error)}`);
}
