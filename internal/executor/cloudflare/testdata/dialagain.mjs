// Drives an operation of a Worker: node dialagain.mjs PORT writes in JSON how it ends with guests that close connections.
import { pathToFileURL } from "node:url";

const { work } = await import(pathToFileURL(process.argv[2]));

const result = new TextEncoder().encode(JSON.stringify({ exit_code: 0, data: "same" }));
const frame = Uint8Array.of(3, 0, 0, 0, result.length, ...result);

// guest closes its first connections, after it has written some bytes, and answers the next one.
function guest(closes, bytes) {
  const ids = [];
  const connect = () => {
    const answers = ids.push(null) > closes;
    let sent = 0;
    return {
      readable: new ReadableStream({
        start(c) {
          if (answers) c.enqueue(frame);
          else if (bytes > 0) c.enqueue(frame.subarray(0, bytes));
          c.close();
        },
      }),
      writable: new WritableStream({
        write(piece) {
          if (++sent === 2) ids[ids.length - 1] = JSON.parse(new TextDecoder().decode(piece.subarray(4))).id;
        },
      }),
      closed: Promise.resolve(),
      close: async () => {},
    };
  };
  return { ids, container: { running: true, getTcpPort: () => ({ connect }) } };
}

const key = { bytes: () => new Uint8Array(32) };
const ends = {};
for (const [name, closes, bytes, more] of [
  ["twice", 2, 0, {}],
  ["always", 9, 0, {}],
  ["in the middle", 1, 7, {}],
  ["with input", 1, 0, { input: async () => new Blob(["input"]).stream() }],
  ["without its input", 9, 0, { input: () => Promise.reject(new Error("it is missing")) }],
  ["cancelled", 9, 0, { cancel: Promise.resolve() }],
  ["the last one", 9, 0, { last: true }],
  ["of a container that has ended", 9, 0, { ended: true }],
]) {
  const g = guest(closes, bytes);
  g.container.running = !more.ended;
  const end = await work(g.container, key, { request: { op: "save" }, ...more }).then(({ data }) => data, (e) => e.message);
  ends[name] = { end, connections: g.ids.length, ids: new Set(g.ids.filter((id) => id !== null)).size };
}
console.log(JSON.stringify(ends));
