// Errors with the codes and reasons of the executor (sandbox/errors.go). A reason refines a code.

export type Code = "invalid" | "not_found" | "conflict" | "capacity_exceeded" | "unauthenticated" | "unavailable" | "unknown_outcome" | "failed" | "internal";

const statuses: Record<Code, number> = {
  invalid: 400,
  unauthenticated: 401,
  not_found: 404,
  conflict: 409,
  failed: 422,
  internal: 500,
  unknown_outcome: 502,
  capacity_exceeded: 503,
  unavailable: 503,
};

export class Failure extends Error {
  constructor(
    readonly code: Code,
    message: string,
    readonly reason = "",
  ) {
    super(message);
  }

  response(): Response {
    const body = { code: this.code, reason: this.reason, message: this.message };
    return Response.json(body, { status: statuses[this.code] });
  }
}

export function asFailure(error: unknown): Failure {
  return error instanceof Failure ? error : new Failure("internal", text(error));
}

export function text(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

// The platform reports the reason for a failed start only as text. cloudflare/containers#45 quotes the first two texts;
// the others mean that the account's total of memory, CPU or disk is used up (cloudflare-docs, sandbox/1-0-preview,
// read 2026-11). Local workerd never runs out of room, so testdata/noroom.js simulates them.
const noRoom = [
  "Maximum number of running container instances exceeded", "no container instance that can be provided",
  "SURPASSED_TOTAL_LIMITS", "LOCATION_SURPASSED_BASE_LIMITS",
];

// startFailure returns the executor's error for a container that did not start.
export function startFailure(error: unknown): Failure {
  if (error instanceof Failure) return error;
  const cause = text(error);
  if (noRoom.some((t) => cause.includes(t))) {
    return new Failure("capacity_exceeded", `start its container: ${cause} (retry once others have ended, or raise max_instances or the limits of the account)`);
  }
  return new Failure("failed", `start its container: ${cause}`, "sandbox_start_failed");
}

// readOff reads a body that no handler has read. Closing a connection with an unread body would break it before the
// caller gets the error.
export async function readOff(request: Request): Promise<void> {
  if (request.body === null || request.body.locked) return;
  const reader = request.body.getReader();
  for (let chunks = 0; chunks < 16; chunks++) {
    const quiet = new Promise<boolean>((resolve) => setTimeout(() => resolve(false), 50));
    const more = reader.read().then(({ done }) => !done, () => false);
    if (!(await Promise.race([more, quiet]))) return;
  }
}
