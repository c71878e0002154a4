
// Appended to the Worker: GET /memory returns how many Durable Objects were made, how long their alarms took in
// milliseconds, and how many timers are pending.
{
  let objects = 0;
  const alarms = [];
  const pending = new Set();
  const { setTimeout: later, clearTimeout: cancel, setInterval: every, clearInterval: end } = globalThis;

  globalThis.setTimeout = (act, ms, ...args) => {
    const timer = later(() => (pending.delete(timer), act(...args)), ms);
    pending.add(timer);
    return timer;
  };
  globalThis.setInterval = (...args) => {
    const timer = every(...args);
    pending.add(timer);
    return timer;
  };
  globalThis.clearTimeout = (timer) => (pending.delete(timer), cancel(timer));
  globalThis.clearInterval = (timer) => (pending.delete(timer), end(timer));

  const Watched = Sandbox;
  Sandbox = class extends Watched {
    constructor(ctx, env) {
      super(ctx, env);
      objects++;
    }

    async alarm() {
      const began = Date.now();
      await super.alarm();
      alarms.push(Date.now() - began);
    }
  };

  const answer = index_default.fetch;
  index_default.fetch = function (request, env, ctx) {
    if (new URL(request.url).pathname !== "/memory") return answer.call(this, request, env, ctx);
    return Response.json({ objects, alarms, timers: pending.size });
  };
}
