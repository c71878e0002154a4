import { Failure } from "./errors";

// Path names a sandbox, and what to do with it.
export interface Path {
  instance: string;
  ledger: string;
  sandbox: string;
  verb: string;
}

// Ids are those that package sandbox issues. No other case is taken: it would lead to another Durable Object.
const pattern = /^\/v1\/instances\/([^/]+)\/ledgers\/([a-z2-7]{16})\/sandboxes\/([a-z2-7]{26})(?:\/([a-z]+))?$/;

// ofLedger is what is asked about all sandboxes of a ledger.
const ofLedger = /^\/v1\/instances\/([^/]+)\/ledgers\/([a-z2-7]{16})\/sandboxes$/;

// parseLedger returns null for a path that names no ledger, or one of its sandboxes.
export function parseLedger(request: Request): { instance: string; ledger: string } | null {
  const match = ofLedger.exec(new URL(request.url).pathname);
  if (match === null) return null;
  const [, instance = "", ledger = ""] = match;
  return { instance: decodeURIComponent(instance), ledger };
}

export function parsePath(request: Request): Path {
  const match = pattern.exec(new URL(request.url).pathname);
  if (match === null) {
    throw new Failure("invalid", "the path names no sandbox: /v1/instances/I/ledgers/L/sandboxes/S, with ids of a-z and 2-7");
  }
  const [, instance = "", ledger = "", sandbox = "", verb = ""] = match;
  return { instance: decodeURIComponent(instance), ledger, sandbox, verb };
}
