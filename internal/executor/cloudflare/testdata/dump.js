
// Appended to the Worker: GET /dump?name=LEDGER/ID returns the rows of a Durable Object's storage, by table, and
// beside them its alarm. A sandbox whose variable PURGED is set is purged right after its kill.
{
  const answer = index_default.fetch;
  index_default.fetch = function (request, env, ctx) {
    const { pathname, searchParams: asked } = new URL(request.url);
    if (pathname !== "/dump") return answer.call(this, request, env, ctx);
    return env.SANDBOX.get(env.SANDBOX.idFromName(asked.get("name"))).fetch("http://dump/");
  };

  const fetched = Sandbox.prototype.fetch;
  Sandbox.prototype.fetch = async function (request) {
    if (new URL(request.url).host !== "dump") return fetched.call(this, request);
    const { sql } = this.ctx.storage;
    const tables = sql.exec("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE '\\_cf\\_%' ESCAPE '\\'").toArray();
    const rows = tables.map(({ name }) => [name, sql.exec(`SELECT * FROM "${name}"`).toArray()]);
    const alarm = (await this.ctx.storage.getAlarm()) ?? [];
    return Response.json({ ...Object.fromEntries(rows), "": [...(await this.ctx.storage.list())].concat(alarm) });
  };

  const remove = Store.prototype.remove;
  Store.prototype.remove = function (now) {
    remove.call(this, this.row().settings.env.PURGED ? 0 : now);
  };
}
