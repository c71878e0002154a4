// Uses the API as a program does whose client was generated from its document.
import assert from "node:assert/strict";
import process from "node:process";

import * as api from "./client";
import { client } from "./client/client.gen";

client.setConfig({ baseUrl: process.env.URL!, auth: () => process.env.TOKEN! });

/** The answer's body, where the request was carried out. */
async function ok<T>(answer: Promise<{ data?: T; error?: unknown; response?: Response }>): Promise<T> {
  const { data, error, response } = await answer;
  assert.equal(error, undefined, `${response?.url}: ${JSON.stringify(error)}`);
  return data as T;
}

/** The problem's code, where it was refused. */
async function refused(answer: Promise<{ error?: unknown; response?: Response }>, status: number): Promise<string> {
  const { error, response } = await answer;
  assert.equal(response?.status, status);
  return (error as api.Problem).code;
}

const lease = { id: "did:plc:ann::catan-7" };

assert.ok((await ok(api.getLedger())).id);
const environment = await ok(api.putEnvironment({ path: { id: "catan-7" }, body: { image: "player:1", type: "catan", ttl: "1h" } }));
assert.deepEqual(environment.expiry_conditions, ["game.finished"]);
assert.equal((await ok(api.listEnvironments())).environments?.length, 1);
assert.equal(await refused(api.getEnvironment({ path: { id: "nowhere" } }), 404), "not_found");
assert.equal(await refused(api.putEnvironment({ path: { id: "Not an id" }, body: { image: "" } }), 422), "invalid");

const acquired = await ok(api.acquireLease({ body: { agent_did: "did:plc:ann", environment_id: "catan-7" } }));
assert.ok(acquired.is_new);
const table = await ok(
  api.acquireLeases({ body: { environment_id: "catan-7", all_or_none: true, items: [{ agent_did: "did:plc:bob" }, { agent_did: "did:plc:cyd" }] } }),
);
assert.deepEqual(table.results.map((r) => [r.lease?.agent_did, r.is_new, r.error]), [["did:plc:bob", true, undefined], ["did:plc:cyd", true, undefined]]);
const each = await ok(api.acquireLeases({ body: { items: [{ agent_did: "did:plc:bob", environment_id: "nowhere" }] } }));
assert.equal(each.results[0].error?.code, "not_found");
const agents: string[] = [];
for (let after: string | undefined; ; ) {
  const page = await ok(api.listLeases({ query: { limit: 2, after } }));
  agents.push(...page.leases.map((l) => l.agent_did));
  if (!(after = page.next_after)) break;
}
assert.deepEqual(agents, ["did:plc:ann", "did:plc:bob", "did:plc:cyd"]);

const ran = await ok(api.exec({ path: lease, body: { command: ["echo", "my turn"] } }));
assert.ok("exit_code" in ran && ran.exit_code === 0, JSON.stringify(ran));
assert.ok((await ok(api.listExecs({ path: lease }))).execs?.length);
const session = await ok(api.createSession({ path: lease, body: {} }));
await ok(api.execInSession({ path: { ...lease, session: session.id }, body: { shell: "cd /data" } }));
assert.equal((await ok(api.getSession({ path: { ...lease, session: session.id } }))).cwd, "/data");
await ok(api.closeSession({ path: { ...lease, session: session.id } }));
await ok(api.leaseUsage({ path: lease }));
assert.ok((await ok(api.leaseUsageHistory({ path: lease, query: { from: "2026-08-15T12:00:00Z" } }))).samples);
await ok(api.leaseHealth({ path: lease }));
await ok(api.renewLease({ path: lease, body: {} }));
await ok(api.sleepLease({ path: lease }));
await ok(api.wakeLease({ path: lease }));

const token = await ok(api.createToken({ body: { name: "viewer", scopes: ["read"] } }));
assert.equal(
  await refused(api.sleepLease({ path: lease, auth: () => token.token }), 403),
  "forbidden",
);
assert.ok((await ok(api.listTokens())).tokens?.length);
await ok(api.revokeToken({ path: { token: "viewer" } }));

assert.ok((await ok(api.listEvents({ query: { environment_id: "catan-7" } }))).events?.length);
assert.equal((await ok(api.getCosts({ query: { group_by: "agent" } }))).rows?.length, 3);
await ok(api.listDrift());
await ok(api.listStates());
await ok(api.sweep({ body: { dry_run: true } }));
await ok(api.audit({ body: {} }));

await ok(api.releaseLease({ path: { id: "did:plc:cyd::catan-7" } }));
const receipt = await ok(
  api.postCondition({
    body: { type: "game.finished", timestamp: process.env.OVER_AT!, data: { environment_id: "catan-7" } },
  }),
);
assert.equal(receipt.status, "applied");
assert.equal(receipt.matched, 2);
assert.equal(await refused(api.exec({ path: lease, body: { command: ["echo"] } }), 409), "lease_ended");
await ok(api.deleteEnvironment({ path: { id: "catan-7" }, query: { force: true } }));
console.log("used");
