// The TCP port on which process 1 of a container listens (internal/guest/port). Section 10 of
// internal/channel/PROTOCOL.md describes the protocol.

import { text } from "./errors";
import { concat, Scanner, type Result } from "./frames";
import type { Rows } from "./rows";
import { within } from "./wait";

// portNumber and keyVariable are guest.Port and guest.PortKey.
export const portNumber = 39080;
export const keyVariable = "SANDBOX_PORT_KEY";

const magic = "SBXPORT\n";
export const purposeCarrier = 1;
const purposeOperation = 2;

// connectLimit is the timeout of a connection to the port, in milliseconds.
const connectLimit = 10_000;

// The kinds of input frames of an operation.
const inputData = 1;
const inputEnd = 2;
const maxInput = 64 << 10;

// makeKeyTable creates the table of a Key.
export function makeKeyTable(sql: SqlStorage): void {
  sql.exec(`CREATE TABLE IF NOT EXISTS port (id INTEGER PRIMARY KEY CHECK (id = 0), key TEXT NOT NULL)`);
}

// Key is the key of one start of the container. It is stored because the container outlives this object.
export class Key {
  constructor(private readonly sql: Rows) {}

  // renew creates the key of the next start, and returns it in hexadecimal.
  renew(): string {
    const key = hex(crypto.getRandomValues(new Uint8Array(32)));
    this.sql.exec(`INSERT OR REPLACE INTO port (id, key) VALUES (0, ?)`, key);
    return key;
  }

  // forget removes the key of a container that never runs again.
  forget(): void {
    this.sql.exec(`DELETE FROM port`);
  }

  bytes(): Uint8Array {
    const [row] = this.sql.exec<{ key: string }>(`SELECT key FROM port`).toArray();
    if (row === undefined) throw new Error("an earlier release started the container: put the sandbox to sleep and wake it");
    return Uint8Array.from(row.key.match(/../g) ?? [], (digits) => parseInt(digits, 16));
  }
}

// open connects to the port and sends the key.
export async function open(container: Container, key: Uint8Array, purpose: number): Promise<Socket> {
  const socket = container.getTcpPort(portNumber).connect(`10.0.0.1:${portNumber}`);
  socket.closed.catch(() => undefined); // the reader and the writer report the error
  const writer = socket.writable.getWriter();
  try {
    const sent = writer.write(concat([new TextEncoder().encode(magic), Uint8Array.of(purpose), key]));
    if (!(await within(sent, connectLimit))) {
      throw new Error(`its guest did not accept a connection within ${connectLimit / 1000} s`);
    }
  } catch (error) {
    close(socket);
    throw error;
  }
  writer.releaseLock();
  return socket;
}

// close ends a connection, and does not wait for it: close() of a connection that the port has not accepted waits for
// that first.
function close(socket: Socket): void {
  socket.close().catch(() => undefined); // the guest may have closed it
}

// Work is an operation that this Worker itself requests.
export interface Work {
  // request is a channel.Request.
  request: { op: string; id?: string } & Record<string, unknown>;
  // input opens the input, once for each connection.
  input?: () => Promise<ReadableStream<Uint8Array>>;
  // take receives the standard output, piece by piece.
  take?: (payload: Uint8Array) => Promise<void>;
  // cancel cancels the operation once it resolves.
  cancel?: Promise<void>;
  // last: the operation ends every program, as the deadline does. If the guest does not answer, it has ended too, so
  // there is no retry.
  last?: boolean;
  // probe: the operation finds out whether the guest answers. It gets one connection, and retryLimit.
  probe?: boolean;
}

// OperationFailed is the error of an operation that the guest could not carry out.
export class OperationFailed extends Error {
  constructor(
    // problem is a wire.Problem of the guest, such as problemNotFound.
    readonly problem: string,
    message: string,
    // ran: a command ran and ended, so this is its result and not a refusal.
    readonly ran: boolean,
  ) {
    super(message);
  }
}

// problemNotFound is wire.ProblemNotFound. For a command, it means that the guest never knew its id or has forgotten
// it.
export const problemNotFound = "not_found";

// attempts is how often work connects if the guest closes the connection before it answers, as in a flood of
// connections or on a busy machine. retryPause is the pause between two attempts. retryLimit is the timeout for the
// first byte of the answer to a retry or a probe: a guest that has died meanwhile may not even close the connection.
// Both are in milliseconds.
const attempts = 3;
const retryPause = 100;
const retryLimit = 10_000;

// work runs an operation in the guest and returns its result. Errors: OperationFailed.
export async function work(container: Container, key: Key, w: Work): Promise<Result> {
  const request = { id: crypto.randomUUID(), ...w.request }; // the guest runs each id once
  let cancelled = false;
  void w.cancel?.then(() => (cancelled = true)).catch(() => undefined);
  const all = w.last === true || w.probe === true ? 1 : attempts;
  for (let left = all; ; left--) {
    const limited = w.probe === true || (left < all && w.input === undefined);
    const result = await attempt(container, key, { ...w, request }, limited ? retryLimit : null);
    if (typeof result !== "string") {
      const { problem, message, duration = 0 } = result;
      if (problem) throw new OperationFailed(problem, `operation ${request.op}: ${message}`, duration > 0);
      return result;
    }
    if (left > 1 && !cancelled) await scheduler.wait(retryPause);
    if (left === 1 || cancelled || !container.running) throw new Error(`operation ${request.op}: ${result}`);
  }
}

// attempt runs an operation on a connection of its own. It returns why there is no result if the guest closed the
// connection before it answered, or did not answer within limit. A null limit means no timeout.
async function attempt(container: Container, key: Key, w: Work, limit: number | null): Promise<Result | string> {
  const socket = await open(container, key.bytes(), purposeOperation);
  void w.cancel?.then(() => close(socket)).catch(() => undefined); // the reader below sees the end
  const scanner = new Scanner();
  let answered = false;
  let unopened: unknown = null; // why the input could not be opened
  const input = async () => w.input?.().catch((error: unknown) => Promise.reject((unopened = error)));
  try {
    const sending = send(socket.writable, w.request, input);
    sending.catch(() => undefined); // the result shows whether the guest got the input
    const reader = (socket.readable as ReadableStream<Uint8Array>).getReader();
    const first = reader.read();
    if (limit !== null && !(await within(first, limit))) return `the guest did not answer within ${limit / 1000} s`;
    for (let piece = await first; !piece.done; piece = await reader.read()) {
      answered = true;
      for (const payload of scanner.scan(piece.value)) await w.take?.(payload);
      const result = scanner.result();
      if (result !== null && unopened === null) return result;
    }
  } catch (error) {
    if (answered && unopened === null) throw error;
  } finally {
    close(socket);
  }
  if (unopened !== null) throw unopened;
  if (answered) throw new Error(`operation ${w.request.op}: the guest closed the connection in the middle of its answer`);
  return "the guest closed the connection without a result";
}

// send sends a request, and then opens and sends its input. It must not open the input earlier: while a large R2 object
// streams, no timer of this Worker fires, and the guest might wait too long for the request.
async function send(
  writable: WritableStream,
  request: Work["request"],
  input: () => Promise<ReadableStream<Uint8Array> | undefined>,
): Promise<void> {
  const writer = (writable as WritableStream<Uint8Array>).getWriter();
  const first = new TextEncoder().encode(JSON.stringify(request));
  await writer.write(concat([length(first.length), first]));
  try {
    const reader = (await input())?.getReader();
    for (let piece = await reader?.read(); piece !== undefined && !piece.done; piece = await reader?.read()) {
      for (let rest = piece.value; rest.length > 0; rest = rest.subarray(maxInput)) {
        const taken = rest.subarray(0, maxInput);
        await writer.write(concat([Uint8Array.of(inputData), length(taken.length), taken]));
      }
    }
  } catch (error) {
    await writer.abort(error); // an input without its end frame counts as cut off
    throw new Error(`read the input of operation ${request.op}: ${text(error)}`);
  }
  await writer.write(concat([Uint8Array.of(inputEnd), length(0)]));
}

function length(n: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, n);
  return bytes;
}

// base64 encodes a path for a request.
export function base64(path: string): string {
  return btoa(path);
}

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
}
