
// Appended to the Worker: POST /burst/ACT?ledger=L&from=M&to=N makes sandboxes M to N of a ledger act at the same time,
// without containers, and returns why some failed. Another one has the id in "id", and one whose lease D1 refuses is made
// by "bad". POST /burst/fault?slow=MS&fail=N&lose=N&alone=1 delays calls of D1, fails the next N, loses N % of them or of
// their answers, and makes one for each object.
// POST /burst/writes returns how many writes have come since.
{
  const hasty = soon;
  const acts = {
    async start(name) {
      const settings = {
        lease_id: name, generation: 1, agent_did: name, environment_id: "burst", environment_type: "custom", deadline_us: 4e15,
        ttl_ms: 0, sleep_after_ms: 0, lease_ttl_ms: 0, lease_sleep_after_ms: 0, expiry_conditions: [], env: {}, config: "",
      };
      if (name.endsWith("bad")) settings.environment_type = null;
      this.store.create(name, settings, Date.now());
      this.store.owe();
      await this.mustTell();
      this.store.begin(Date.now(), "");
      this.store.owe();
      this.store.setReady();
      await this.mustTell();
    },
    async end() {
      this.store.end(1, Date.now(), "kill", 0);
      await this.forget();
    },
    // drop removes the sandbox, and leaves its container.
    async drop() {
      this.store.remove(Date.now());
    },
    // settled fails while the copy lacks something.
    async settled() {
      if (this.store.owes()) throw new Error("the copy is older than its state");
    },
    // late writes an older state than the copy has.
    async late(name) {
      const [ledger, id] = name.split("/");
      const view = { ...this.standsAs(this.store.row()), state: "older", version: this.store.version() - 1 };
      await this.copy.put(ledger, id, view, null);
    },
    // restore writes the row of a sandbox that was killed, as a late write does.
    async restore(name) {
      const [ledger, id] = name.split("/");
      await this.copy.put(ledger, id, { settings: this.store.killed().settings, state: "running", version: 1 }, null);
    },
    // rest lets an hour pass without a use, and alarm is what the platform calls, with time for the guest.
    async rest() {
      this.uses.usedAt = 0;
      this.store.use(Date.now() - 3600_000);
    },
    async alarm() {
      soon = (ask) => ask(new Promise(() => {})); // a stall of this machine leaves no reading out
      try {
        await this.alarm();
      } finally {
        soon = hasty;
      }
    },
    // age makes the storage that of an older Worker, whose copy is older than its state.
    async age() {
      this.ctx.storage.sql.exec("DROP TABLE owed");
      this.ctx.storage.sql.exec("CREATE TABLE owed (one INTEGER PRIMARY KEY CHECK (one = 1))");
      this.ctx.storage.sql.exec("INSERT INTO owed (one) VALUES (1)");
    },
    async abort() {
      this.ctx.abort("the test resets this object");
    },
  };

  let [slow, fail, lose, alone, changed, writes] = [0, 0, 0, false, false, 0];

  const answer = index_default.fetch;
  index_default.fetch = async function (request, env, ctx) {
    const { pathname, searchParams: asked } = new URL(request.url);
    if (!changed) changeCalls(Object.getPrototypeOf(env.DB));
    changed = true;
    if (!pathname.startsWith("/burst/")) return answer.call(this, request, env, ctx);
    const act = pathname.slice("/burst/".length);
    if (act === "fault") {
      [slow, fail, lose] = ["slow", "fail", "lose"].map((name) => Number(asked.get(name)));
      alone = asked.get("alone") !== null;
      writes = 0;
      return Response.json([]);
    }
    if (act === "writes") return Response.json([String(writes)]);
    const names = [];
    for (let i = Number(asked.get("from")); i < Number(asked.get("to")); i++) names.push(`${asked.get("ledger")}/box-${i}`);
    if (asked.get("id") !== null) names.push(`${asked.get("ledger")}/${asked.get("id")}`);
    if (asked.get("bad") !== null) names.push(`${asked.get("ledger")}/bad`);
    const called = names.map(async (name) => {
      const answer = await env.SANDBOX.get(env.SANDBOX.idFromName(name)).fetch(`http://burst/${act}?name=${name}`);
      if (!answer.ok) throw new Error(`${name}: ${await answer.text()}`);
    });
    const failed = (await Promise.allSettled(called)).filter(({ status }) => status === "rejected");
    return Response.json(failed.map(({ reason }) => String(reason)));
  };

  const fetched = Sandbox.prototype.fetch;
  Sandbox.prototype.fetch = async function (request) {
    const { host, pathname, searchParams: asked } = new URL(request.url);
    if (host !== "burst") return fetched.call(this, request);
    try {
      await acts[pathname.slice(1)].call(this, asked.get("name"));
      return new Response();
    } catch (error) {
      return new Response(String(error), { status: 500 });
    }
  };

  const put = Writes.prototype.put;
  Writes.prototype.put = function (statements) {
    writes++;
    return alone ? this.send([{ statements }]) : put.call(this, statements);
  };

  function changeCalls(prototype) {
    const batch = prototype.batch;
    prototype.batch = async function (statements) {
      if (slow > 0) await scheduler.wait(slow);
      if (fail > 0) {
        fail--;
        throw new Error("D1_ERROR: the test fails this call");
      }
      const lost = Math.random() * 100;
      if (lost < lose / 2) throw new Error("D1_ERROR: the test loses this call");
      const results = await batch.call(this, statements);
      if (lost < lose) throw new Error("D1_ERROR: the test loses this answer");
      return results;
    };
  }
}
