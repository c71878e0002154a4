// Drives the log of a Worker's sandbox: node logattempts.mjs ATTEMPTS writes what a database got, in JSON. The database fails
// twice: once before it has taken a batch, and once after.
import { pathToFileURL } from "node:url";

globalThis.scheduler = { wait: () => new Promise(setImmediate) };
console.error = () => {}; // the failures are its
const { Attempts } = await import(pathToFileURL(process.argv[2]));

let now = 1_000_000;
let calls = 0;
const batches = new Map();
const networks = {
  rules: async () => ({ allow: [{ host: "good.test" }] }),
  append: async (_ledger, _environment, batch, lines) => {
    calls++;
    if (calls === 1) throw new Error("away");
    if (!batches.has(batch)) batches.set(batch, lines);
    if (calls === 2) throw new Error("its answer was lost");
  },
};
const held = [];
const attempts = new Attempts(networks, () => now, (p) => held.push(p));
const who = { ledger: "l", environment: "e", sandbox: "s", agent: "a" };
const target = (host) => ({ protocol: "tls", host, port: 443, upgrade: "" });

for (let i = 0; i < 1300; i++) await attempts.decide(who, target("evil.test"));
now += 5_000; // the rules are read again, while all attempts wait for them
const decisions = await Promise.all(Array.from({ length: 300 }, () => attempts.decide(who, target("good.test"))));
const open = decisions.filter((d) => "id" in d).length;
now += 10_000;
await Promise.all(held);
for (let i = 0; i < 3; i++) await attempts.flush(who);
const lines = [...batches.values()].flat();
now += 3600_000; // the ends of the open ones were lost
const later = "id" in (await attempts.decide(who, target("good.test")));
console.log(JSON.stringify({
  open,
  later,
  lines: lines.filter((l) => l.kind === "closed").length,
  unique: new Set(lines.filter((l) => l.kind === "closed").map((l) => l.attempt)).size,
  dropped: lines.filter((l) => l.kind === "dropped").reduce((sum, l) => sum + l.count, 0),
  largest: Math.max(...[...batches.values()].map((b) => b.length)),
}));
