/**
 * Leases sandboxes of a reconciler, and runs commands in them.
 *
 *     await using s = await lease("did:plc:ada", { environment: "catan-7" });
 *     await s.run("npm test", { onStdout: console.log });
 */
import { Client, type LeaseOptions } from "./client.js";
import type { Sandbox } from "./sandbox.js";

export { Client } from "./client.js";
export type { AgentRequest, ConditionOptions, Fence, LeaseOptions, RunOptions } from "./client.js";
export { SandboxError, type Code } from "./errors.js";
export { Output, Result, RunResult, type CommandLine, type OnLine } from "./output.js";
export { Command, Sandbox, Session } from "./sandbox.js";
export type { CommandOptions, ProcessOptions, SessionOptions, StartOptions } from "./sandbox.js";
export { Answer, type CallOptions, type ClientOptions, type Content, type Duration } from "./transport.js";
export type * as types from "./types.js";
export * as webhook from "./webhook.js";

/** new Client().lease: the reconciler and the token are SANDBOX_RECONCILER_URL and SANDBOX_RECONCILER_TOKEN. */
export function lease(agentDid: string, options: LeaseOptions): Promise<Sandbox> {
  return new Client().lease(agentDid, options);
}
