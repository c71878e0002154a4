import { Failure } from "./errors";

// Path names a sandbox and the operation on it.
export interface Path {
  instance: string;
  ledger: string;
  sandbox: string;
  verb: string;
}

// Ids have the form that package sandbox issues. Upper case is rejected: it would name another Durable Object.
const pattern = /^\/v1\/instances\/([^/]+)\/ledgers\/([a-z2-7]{16})\/sandboxes\/([a-z2-7]{26})(?:\/([a-z]+))?$/;

// ofLedger matches the path of all sandboxes of a ledger.
const ofLedger = /^\/v1\/instances\/([^/]+)\/ledgers\/([a-z2-7]{16})\/sandboxes$/;

// parseLedger returns null unless the path names all sandboxes of a ledger.
export function parseLedger(request: Request): { instance: string; ledger: string } | null {
  const match = ofLedger.exec(new URL(request.url).pathname);
  if (match === null) return null;
  const [, instance = "", ledger = ""] = match;
  return { instance: decodeURIComponent(instance), ledger };
}

// NetworkPath names a restricted network or, with the verb list, all those of a ledger.
export interface NetworkPath {
  instance: string;
  ledger: string;
  environment: string;
  verb: "list" | "rules" | "attempts";
}

const ofNetwork = /^\/v1\/instances\/([^/]+)\/ledgers\/([a-z2-7]{16})\/networks(?:\/([a-z0-9][a-z0-9._-]{0,62})(\/attempts)?)?$/;

// parseNetwork returns null if the path names no restricted network.
export function parseNetwork(request: Request): NetworkPath | null {
  const match = ofNetwork.exec(new URL(request.url).pathname);
  if (match === null) return null;
  const [, instance = "", ledger = "", environment = "", attempts] = match;
  const verb = environment === "" ? "list" : attempts === undefined ? "rules" : "attempts";
  return { instance: decodeURIComponent(instance), ledger, environment, verb };
}

// EnvironmentPath names an environment of a ledger or, without one, all of them.
export interface EnvironmentPath {
  instance: string;
  ledger: string;
  environment: string;
}

const ofEnvironment = /^\/v1\/instances\/([^/]+)\/ledgers\/([a-z2-7]{16})\/environments(?:\/([a-z0-9][a-z0-9._-]{0,62}))?$/;

// parseEnvironment returns null unless the path names environments.
export function parseEnvironment(request: Request): EnvironmentPath | null {
  const match = ofEnvironment.exec(new URL(request.url).pathname);
  if (match === null) return null;
  const [, instance = "", ledger = "", environment = ""] = match;
  return { instance: decodeURIComponent(instance), ledger, environment };
}

// LLMPath names the LLM routes of an environment.
export interface LLMPath {
  instance: string;
  ledger: string;
  environment: string;
  verb: "routes" | "calls";
}

const ofLLM = /^\/v1\/instances\/([^/]+)\/ledgers\/([a-z2-7]{16})\/llm\/([a-z0-9][a-z0-9._-]{0,62})(\/calls)?$/;

// parseLLM returns null if the path names no LLM routes.
export function parseLLM(request: Request): LLMPath | null {
  const match = ofLLM.exec(new URL(request.url).pathname);
  if (match === null) return null;
  const [, instance = "", ledger = "", environment = "", calls] = match;
  return { instance: decodeURIComponent(instance), ledger, environment, verb: calls === undefined ? "routes" : "calls" };
}

export function parsePath(request: Request): Path {
  const match = pattern.exec(new URL(request.url).pathname);
  if (match === null) {
    const must = "it must be /v1/instances/I/ledgers/L/sandboxes/S, with ids of a-z and 2-7";
    throw new Failure("invalid", `the path names no sandbox: ${must}`);
  }
  const [, instance = "", ledger = "", sandbox = "", verb = ""] = match;
  return { instance: decodeURIComponent(instance), ledger, sandbox, verb };
}
