// Drives operations and starts of a Worker: node dialagain.mjs PORT CONTAINER writes in JSON how each ends with a guest
// that closes connections or does not answer. Its clock runs 100 times as fast.
import { pathToFileURL } from "node:url";

const [{ work, Key }, { Box }] = await Promise.all(process.argv.slice(2).map((path) => import(pathToFileURL(path))));

const speed = 100;
const realTimeout = setTimeout;
globalThis.setTimeout = (f, ms) => realTimeout(f, ms / speed);
globalThis.scheduler = { wait: (ms) => new Promise((resolve) => setTimeout(resolve, ms)) };
const now = () => Date.now() * speed;

const result = new TextEncoder().encode(JSON.stringify({ exit_code: 0, data: "same" }));
const frame = Uint8Array.of(3, 0, 0, 0, result.length, ...result);
const never = new Promise(() => {});

// guest fails its first connections in a way, and answers the next one. "closed" closes it after some bytes, "cut"
// closes it once its input is cut off, "silent" keeps it open without an answer, and "unopened" never accepts it: then
// nothing is written, and close() waits too, as in the Workers runtime.
function guest(fails, way, bytes = 0) {
  const ids = [];
  const connect = () => {
    const failing = ids.push(null) > fails ? "" : way;
    let sent = 0;
    let answer;
    return {
      readable: new ReadableStream({
        start(c) {
          answer = c;
          if (failing === "") c.enqueue(frame);
          if (failing === "closed" && bytes > 0) c.enqueue(frame.subarray(0, bytes));
          if (failing === "" || failing === "closed") c.close();
        },
      }),
      writable: new WritableStream({
        write(piece) {
          if (failing === "unopened") return never;
          if (++sent === 2) ids[ids.length - 1] = JSON.parse(new TextDecoder().decode(piece.subarray(4))).id;
        },
        abort() {
          if (failing === "cut") answer.close();
        },
      }),
      closed: failing === "unopened" ? never : Promise.resolve(),
      close: () => (failing === "unopened" ? never : Promise.resolve()),
    };
  };
  return { ids, container: { running: true, getTcpPort: () => ({ connect }) } };
}

const ends = {};
for (const [name, fails, way, bytes, more] of [
  ["twice", 2, "closed", 0, {}],
  ["always", 9, "closed", 0, {}],
  ["in the middle", 1, "closed", 7, {}],
  ["with input", 1, "closed", 0, { input: async () => new Blob(["input"]).stream() }],
  ["without its input", 9, "cut", 0, { input: () => Promise.reject(new Error("it is missing")) }],
  ["cancelled", 9, "closed", 0, { cancel: Promise.resolve() }],
  ["the last one", 9, "closed", 0, { last: true }],
  ["of a container that has ended", 9, "closed", 0, { ended: true }],
  ["not accepted", 9, "unopened", 0, {}],
]) {
  const g = guest(fails, way, bytes);
  g.container.running = !more.ended;
  const key = { bytes: () => new Uint8Array(32) };
  const running = work(g.container, key, { request: { op: "save" }, ...more }).then(({ data }) => data, (e) => e.message);
  const end = await Promise.race([running, scheduler.wait(120_000).then(() => "nothing in 120 s")]);
  ends[name] = { end, connections: g.ids.length, ids: new Set(g.ids.filter((id) => id !== null)).size };
}

for (const [name, fails, way, life] of [
  ["start with one not accepted", 1, "unopened", 1e9],
  ["start with one not answered", 1, "silent", 1e9],
  ["start with none accepted", 1e9, "unopened", 1e9],
  ["start with none answered", 1e9, "silent", 1e9],
  ["start that ends", 1e9, "unopened", 20_000],
]) {
  const { container } = guest(fails, way);
  Object.assign(container, {
    running: false,
    start: () => {
      container.running = true;
      setTimeout(() => (container.running = false), life);
    },
    destroy: async () => (container.running = false),
    setInactivityTimeout: async () => {},
    monitor: async () => {},
  });
  const store = { row: () => null, begin: () => 1, alive: () => {}, end: () => {} };
  const key = new Key({ exec: () => ({ toArray: () => [{ key: "00".repeat(32) }] }) });
  const box = new Box(container, store, now, { inactivity: 1000 }, () => null);
  const end = await box.start({ restricted: false, llm: false, env: {} }, {}, key, null).then(() => "started", (e) => e.message);
  ends[name] = { end };
}
console.log(JSON.stringify(ends));
process.exit(); // timers of lives are pending
