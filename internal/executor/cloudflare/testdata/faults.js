
// Appended to the Worker. A sandbox's variable FAULT says what goes wrong with its /data: "no save" works, a "late
// upload" takes some seconds, the "second start" hangs while it restores /data, the guest is "silent" to that restore or
// "mute" to a save, even once its container has ended, or the first start is that of a Worker of an "earlier release". GET
// /fault?name=LEDGER/ID returns whether /data is saved, and how many saves, restores and late uploads began and ended.
{
  const faultOf = (store) => store.row()?.settings.env.FAULT;
  const counts = new Map(); // by sandbox
  const countsOf = (name) => {
    if (!counts.has(name)) counts.set(name, { saves: 0, restores: 0, uploads: 0, uploaded: 0 });
    return counts.get(name);
  };

  const save = Data.prototype.save;
  Data.prototype.save = async function (name, occasion) {
    countsOf(name).saves++;
    if (faultOf(this.store) === "no save") throw new Error("the test fails this save");
    return save.call(this, name, occasion);
  };

  const restore = Data.prototype.restore;
  Data.prototype.restore = async function (name, kept) {
    countsOf(name).restores++;
    const second = this.store.lastPeriod().incarnation === 2;
    if (second && faultOf(this.store) === "second start") await scheduler.wait(3600_000);
    return restore.call(this, name, kept);
  };

  const run = work;
  work = async function (container, key, w) {
    if (w.request.op === unanswered.get(container)) await scheduler.wait(3600_000);
    return run(container, key, w);
  };
  const unanswered = new WeakMap(); // by container: the operation that its guest does not answer

  const close = Upload.prototype.close;
  Upload.prototype.close = async function () {
    if (!late.has(this.name)) return close.call(this);
    const seen = countsOf(this.name.replace("/data.tar", ""));
    seen.uploads++;
    await scheduler.wait(3000);
    await close.call(this);
    seen.uploaded++;
  };
  const late = new Set();

  const fetched = Sandbox.prototype.fetch;
  Sandbox.prototype.fetch = async function (request) {
    const answer = await fetched.call(this, request);
    const operation = { silent: "put", mute: "save" }[faultOf(this.store)];
    if (operation !== undefined) unanswered.set(this.ctx.container, operation);
    if (faultOf(this.store) === "late upload") late.add(`${this.store.row().name}/data.tar`);
    if (faultOf(this.store) === "earlier release" && request.method === "PUT") {
      this.ctx.storage.sql.exec("ALTER TABLE sandbox DROP COLUMN restored");
    }
    return answer;
  };

  const answer = index_default.fetch;
  index_default.fetch = async function (request, env, ctx) {
    const { pathname, searchParams: asked } = new URL(request.url);
    if (pathname !== "/fault") return answer.call(this, request, env, ctx);
    const name = asked.get("name");
    return Response.json({ saved: (await env.STATE.head(`${name}/data.tar`)) !== null, ...countsOf(name) });
  };
}
