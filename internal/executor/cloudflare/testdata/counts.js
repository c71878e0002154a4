
// Appended to the Worker: it counts calls of D1 and the rows that they write, and the rows of Durable Objects' own
// storage, an alarm that is set among them. GET /counts returns the counts.
{
  const counts = { calls: 0, d1: 0, object: 0 };
  const changed = new WeakSet();

  const answer = index_default.fetch;
  index_default.fetch = function (request, env, ctx) {
    countCalls(env.DB);
    return new URL(request.url).pathname === "/counts" ? Response.json(counts) : answer.call(this, request, env, ctx);
  };

  for (const name of ["fetch", "alarm"]) {
    const act = Sandbox.prototype[name];
    Sandbox.prototype[name] = function (request) {
      countRows(Object.getPrototypeOf(this.ctx.storage.sql));
      countAlarms(Object.getPrototypeOf(this.ctx.storage));
      return act.call(this, request);
    };
  }

  function countCalls(db) {
    const statement = Object.getPrototypeOf(db.prepare("SELECT 1"));
    change(Object.getPrototypeOf(db), "batch", (results) => {
      counts.calls++;
      for (const { meta } of results) counts.d1 += meta.rows_written;
    });
    for (const name of ["run", "all"]) {
      change(statement, name, ({ meta }) => {
        counts.calls++;
        counts.d1 += meta.rows_written;
      });
    }
  }

  // change has a method's results counted.
  function change(prototype, name, count) {
    const act = prototype[name];
    if (changed.has(act)) return;
    prototype[name] = async function (...args) {
      const result = await act.apply(this, args);
      count(result);
      return result;
    };
    changed.add(prototype[name]);
  }

  function countRows(prototype) {
    const exec = prototype.exec;
    if (changed.has(exec)) return;
    prototype.exec = function (...args) {
      const cursor = exec.apply(this, args);
      counts.object += cursor.rowsWritten;
      return cursor;
    };
    changed.add(prototype.exec);
  }

  function countAlarms(prototype) {
    const setAlarm = prototype.setAlarm;
    if (changed.has(setAlarm)) return;
    prototype.setAlarm = function (at) {
      counts.object++;
      return setAlarm.call(this, at);
    };
    changed.add(prototype.setAlarm);
  }
}
