import type { Field, Problem } from "./types.js";

export type Code =
  | "invalid"
  | "not_found"
  | "conflict"
  | "lease_ended"
  | "environment_ended"
  | "budget_exceeded"
  | "capacity_exceeded"
  | "event_sequence_expired"
  | "output_expired"
  | "unauthenticated"
  | "forbidden"
  | "unavailable"
  | "unknown_outcome"
  | "timeout"
  | "failed"
  | "internal";

export interface ErrorDetails {
  reason?: string | undefined;
  fields?: Field[] | undefined;
  requestId?: string | undefined;
  status?: number | undefined;
  retryAfter?: number | undefined;
  unsent?: boolean | undefined;
  permanent?: boolean | undefined;
  cause?: unknown;
}

/** A request that was rejected or failed. Code and reason are for programs, the message is for people. */
export class SandboxError extends Error {
  override name = "SandboxError";
  readonly code: Code;
  /** Refines the code; "" if nothing does. */
  readonly reason: string;
  /** The wrong fields of the request. */
  readonly fields: Field[];
  /** The id of the request in the reconciler's log, and its HTTP status; unset if there was no answer. */
  readonly requestId: string | undefined;
  readonly status: number | undefined;
  /** How long the reconciler asked to wait before a retry, in seconds. */
  readonly retryAfter: number | undefined;
  /** The request has not reached the reconciler. */
  readonly unsent: boolean;
  /** No retry can help. */
  readonly permanent: boolean;

  constructor(code: Code, message: string, details: ErrorDetails = {}) {
    super([message, ...(details.fields ?? []).map((f) => `${f.name}: ${f.problem}`)].join("; "), { cause: details.cause });
    this.code = code;
    this.reason = details.reason ?? "";
    this.fields = details.fields ?? [];
    this.requestId = details.requestId;
    this.status = details.status;
    this.retryAfter = details.retryAfter;
    this.unsent = details.unsent ?? false;
    this.permanent = details.permanent ?? false;
  }

  /** Whether the same request may succeed later. */
  get retryable(): boolean {
    return ["unavailable", "unknown_outcome", "capacity_exceeded", "timeout"].includes(this.code);
  }

  /** Returns the error of a problem document. */
  static of(problem: Problem, more: ErrorDetails = {}): SandboxError {
    return new SandboxError(problem.code as Code, problem.detail, {
      reason: problem.reason,
      fields: problem.fields,
      requestId: problem.request_id,
      status: problem.status,
      ...more,
    });
  }
}
