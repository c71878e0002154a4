// Failures as the executor knows them: a code, and a reason that refines it (sandbox/errors.go).

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

// The platform tells why it could not start a container by text alone. These are quoted in
// cloudflare/containers#45. Local workerd has room for ever: testdata/noroom.js says them.
const noRoom = ["Maximum number of running container instances exceeded", "no container instance that can be provided"];

// startFailure says in the executor's terms why a container did not start.
export function startFailure(error: unknown): Failure {
  if (error instanceof Failure) return error;
  const cause = text(error);
  if (noRoom.some((t) => cause.includes(t))) {
    return new Failure("capacity_exceeded", `start its container: ${cause} (retry later, or raise max_instances)`);
  }
  return new Failure("failed", `start its container: ${cause}`, "sandbox_start_failed");
}

// readOff reads what a caller has sent of a body that nobody takes: a connection that is closed over it breaks, and
// takes the refusal with it.
export async function readOff(request: Request): Promise<void> {
  if (request.body === null || request.body.locked) return;
  const reader = request.body.getReader();
  for (let chunks = 0; chunks < 16; chunks++) {
    const quiet = new Promise<boolean>((resolve) => setTimeout(() => resolve(false), 50));
    const more = reader.read().then(({ done }) => !done, () => false);
    if (!(await Promise.race([more, quiet]))) return;
  }
}
