// Ends a game: node webhook.ts ENVIRONMENT (Node.js 22.18 or newer, Deno or Bun)
import { Buffer } from "node:buffer";
import { createHmac, randomUUID } from "node:crypto";
import process from "node:process";
import { setTimeout } from "node:timers/promises";

type Receipt = { id: string; status: "applied" | "stale" | "unmatched"; matched: number; duplicate: boolean };

/** Sends a condition until it is stored. The id stays the same, so it is applied once. */
async function send(condition: object, attempts = 5): Promise<Receipt> {
  const key = Buffer.from(process.env.SANDBOX_WEBHOOK_SECRET!.replace(/^whsec_/, ""), "base64");
  const body = JSON.stringify(condition);
  const id = `msg_${randomUUID()}`;
  for (let attempt = 1; ; attempt++) {
    const now = String(Math.floor(Date.now() / 1000));
    const signature = createHmac("sha256", key).update(`${id}.${now}.${body}`).digest("base64");
    const answer = await fetch(`${process.env.SANDBOX_RECONCILER_URL}/v1/conditions`, {
      method: "POST",
      body,
      headers: {
        "content-type": "application/json",
        "webhook-id": id,
        "webhook-timestamp": now,
        "webhook-signature": `v1,${signature}`,
      },
      signal: AbortSignal.timeout(30_000),
    }).catch((error: unknown) => {
      if (attempt === attempts) throw error;
    });
    if (answer?.ok) return (await answer.json()) as Receipt;
    if (answer && (attempt === attempts || ![429, 502, 503, 504].includes(answer.status))) {
      throw new Error(`${answer.status}: ${await answer.text()}`);
    }
    await setTimeout(200 * 2 ** attempt);
  }
}

const receipt = await send({
  type: "game.finished",
  timestamp: new Date().toISOString(),
  data: { environment_id: process.argv[2] },
});
console.log(`${receipt.status}, ${receipt.matched} leases ended`);
