import type { Sandbox } from "./sandbox";

// Env is what this Worker is deployed with.
export interface Env {
  SANDBOX: DurableObjectNamespace<Sandbox>;
  // DB has a copy of what the Durable Objects know, STATE what lies in the /data of each sandbox.
  DB: D1Database;
  STATE: R2Bucket;
  // SIGNING_KEY is a secret: without it nobody is answered.
  SIGNING_KEY?: string;
  // SIGNING_KEY_OLDER is a secret, too, and is there while keys are rotated.
  SIGNING_KEY_OLDER?: string;
  // SIGNING_KEY_DIGEST names the keys, so that callers use the newest.
  SIGNING_KEY_DIGEST?: string;
  // INSTANCE names this deployment as a backend instance of the ledger: a request for another one is refused.
  INSTANCE: string;
  // CHECK_MS is how often a sandbox that is awake looks after itself, in milliseconds; without, every five minutes.
  CHECK_MS?: string;
}
