// Answers that this Worker gives instead of an upstream. The Go side is internal/gateway/llm/refusal.go.

import type { Api, Route } from "./settings";

// reasonHeader tells programs in the sandbox that this Worker answered instead of the upstream, and why.
export const reasonHeader = "X-Sandbox-Gateway";

// Refused says why this Worker answers instead of the upstream.
export class Refused extends Error {
  // retryAfter is the time until the client may retry, in seconds; 0 if unknown. final: the client must not retry,
  // because a retry is a new call that costs again.
  retryAfter = 0;
  final = false;

  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }

  again(seconds: number): this {
    this.retryAfter = seconds;
    return this;
  }

  once(): this {
    this.final = true;
    return this;
  }

  // response returns the refusal in the API's error format.
  response(api: Api): Response {
    const message = `sandbox gateway: ${this.message}`;
    const type = kindOf(this.status);
    const body =
      api === "anthropic"
        ? { type: "error", error: { type, message } }
        : { error: { message, type, code: this.code, param: null } };
    const headers = new Headers({ [reasonHeader]: this.code });
    if (this.retryAfter > 0) headers.set("Retry-After", String(this.retryAfter));
    if (this.final) headers.set("X-Should-Retry", "false");
    return Response.json(body, { status: this.status, headers });
  }
}

export function refuse(status: number, code: string, message: string): Refused {
  return new Refused(status, code, message);
}

export function unavailable(message: string): Refused {
  return refuse(503, "not_configured", message);
}

function kindOf(status: number): string {
  if (status === 403) return "permission_error";
  if (status === 404) return "not_found_error";
  if (status === 429) return "rate_limit_error";
  return status >= 500 ? "api_error" : "invalid_request_error";
}

// listModels lists the models of a route in the API's format.
export function listModels({ api, models }: Route): Response {
  const names = Object.keys(models).sort();
  if (api === "anthropic") {
    const data = names.map((id) => ({ type: "model", id, display_name: id, created_at: "1970-01-01T00:00:00Z" }));
    return Response.json({ data, has_more: false, first_id: names[0], last_id: names[names.length - 1] });
  }
  const data = names.map((id) => ({ id, object: "model", created: 0, owned_by: "sandbox" }));
  return Response.json({ object: "list", data });
}
