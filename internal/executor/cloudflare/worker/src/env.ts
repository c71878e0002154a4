import type { Outbound } from "./outbound";
import type { Sandbox } from "./sandbox";

declare global {
  namespace Cloudflare {
    interface GlobalProps {
      // mainModule has the exports of this Worker that it calls itself (ctx.exports).
      mainModule: { Outbound: typeof Outbound };
    }
  }
}

// Env has the bindings and variables of this Worker.
export interface Env {
  SANDBOX: DurableObjectNamespace<Sandbox>;
  // DB has a copy of the Durable Objects' state, and the rules and logs of restricted networks. STATE has the saved
  // /data of each sandbox.
  DB: D1Database;
  STATE: R2Bucket;
  // SIGNING_KEY is a secret. Without it this Worker refuses every request.
  SIGNING_KEY?: string;
  // SIGNING_KEY_OLDER is a secret too. It is set while keys are rotated.
  SIGNING_KEY_OLDER?: string;
  // SIGNING_KEY_DIGEST identifies the keys, so that callers use the newest one.
  SIGNING_KEY_DIGEST?: string;
  // INSTANCE is the ledger's name for this backend instance. This Worker refuses requests for another instance.
  INSTANCE: string;
  // IMAGE is the image as the environment names it. IMAGE_PREPARED is the same image, prepared for containers.
  IMAGE?: string;
  IMAGE_PREPARED?: string;
  // SIZE is the size of a container whose start chooses none: a JSON object with memory_mb, cpu_millis and disk_mb.
  SIZE?: string;
  // SCHEDULING_POLICY is the policy of the container application; absent means default.
  SCHEDULING_POLICY?: string;
  // CHECK_MS is the interval of the alarm while a sandbox is awake, in milliseconds; absent means five minutes.
  CHECK_MS?: string;
}
