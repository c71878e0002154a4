// The WebSockets of clients, whose bytes are relayed to the port of the container. Section 10 of
// internal/channel/PROTOCOL.md describes it.

import { Failure, text } from "./errors";
import type { Result } from "./frames";
import { open, type Key, purposeCarrier } from "./port";
import { isBetween } from "./settings";

// maxLimit is a day in milliseconds, which is more than any command gets.
const maxLimit = 25 * 3600_000;

// nonceLife is how long a nonce is remembered, in milliseconds: longer than a signature holds, either way.
const nonceLife = 150_000;

// maxUnsent bounds what waits for the container on a WebSocket, in bytes. A session has 33 MiB unacknowledged at most.
const maxUnsent = 40 << 20;

// Operation is one that a client says is under way.
export interface Operation {
  id: string;
  limit_ms: number;
  detached: boolean;
  quiet: boolean;
}

// End is how a client says that one ended.
interface End extends Partial<Result> {
  id: string;
  // left: its caller has gone; whether it has ended is not known.
  left?: boolean;
}

// Books get what the clients say.
export interface Books {
  // connected is called before a WebSocket opens, idle once the last one has closed.
  connected(): void;
  idle(): Promise<void>;
  begin(op: Operation): void;
  // end is called once for each begin: with a result, or without when its caller has gone or its WebSocket broke.
  end(op: Operation, result: Result | null): Promise<void>;
}

export class Channels {
  private readonly nonces = new Map<string, number>();
  private readonly sockets = new Set<Relay>();

  constructor(
    private readonly container: Container,
    private readonly key: Key,
    private readonly books: Books,
    private readonly waitUntil: (p: Promise<unknown>) => void,
  ) {}

  // accept answers a request for a WebSocket, once the container has taken a connection.
  async accept(request: Request, now: number): Promise<Response> {
    if (request.headers.get("Upgrade")?.toLowerCase() !== "websocket") throw new Failure("invalid", "a channel is a WebSocket");
    this.takeOnce(new URL(request.url).searchParams.get("nonce") ?? "", now);
    const socket = await open(this.container, this.key.bytes(), purposeCarrier);
    const { 0: client, 1: server } = new WebSocketPair();
    this.books.connected();
    const relay = new Relay(server, socket, this.books);
    this.sockets.add(relay);
    this.waitUntil(
      relay.run().finally(async () => {
        this.sockets.delete(relay);
        if (this.sockets.size === 0) await this.books.idle();
      }),
    );
    return new Response(null, { status: 101, webSocket: client });
  }

  // close ends all connections, before the container ends or goes on without them. Clients dial anew.
  close(why: string): void {
    for (const relay of this.sockets) relay.close(why);
  }

  // takeOnce refuses a request that was seen before: a session would carry another one's commands.
  private takeOnce(nonce: string, now: number): void {
    for (const [old, at] of this.nonces) if (at + nonceLife < now) this.nonces.delete(old);
    if (nonce.length < 16 || nonce.length > 64 || this.nonces.has(nonce)) throw new Failure("invalid", "the nonce was used before, or is none");
    this.nonces.set(nonce, now);
  }
}

// Relay is one WebSocket with its connection to the port.
class Relay {
  private readonly open = new Map<string, Operation>();
  private readonly writer: WritableStreamDefaultWriter<Uint8Array>;
  private unsent = 0;
  private closed = false;
  // told is the end of the last end that the books were given. It never rejects.
  private told: Promise<void> = Promise.resolve();

  constructor(
    private readonly client: WebSocket,
    private readonly socket: Socket,
    private readonly books: Books,
  ) {
    this.writer = (socket.writable as WritableStream<Uint8Array>).getWriter();
    client.binaryType = "arraybuffer";
    client.addEventListener("message", ({ data }) => this.take(data));
    client.addEventListener("close", () => this.close("the client closed"));
    client.addEventListener("error", () => this.close("the client broke off"));
    client.accept();
  }

  // run relays what the guest sends, until either side has gone. It never rejects.
  async run(): Promise<void> {
    let why = "the guest closed the connection";
    try {
      const reader = (this.socket.readable as ReadableStream<Uint8Array>).getReader();
      for (let piece = await reader.read(); !piece.done && !this.closed; piece = await reader.read()) this.client.send(piece.value);
    } catch (error) {
      why = text(error);
    }
    this.close(why);
    await this.told;
    const left = [...this.open.values()];
    this.open.clear();
    for (const op of left) await this.settle(op, null);
  }

  close(why: string): void {
    if (this.closed) return;
    this.closed = true;
    this.socket.close().catch(() => undefined); // it may have failed
    try {
      this.client.close(1001, why.slice(0, 100));
    } catch {
      // it was closed by the client
    }
  }

  private take(data: unknown): void {
    if (this.closed) return;
    if (typeof data === "string") {
      this.note(data);
      return;
    }
    const bytes = new Uint8Array(data as ArrayBuffer);
    this.unsent += bytes.length;
    if (this.unsent > maxUnsent) {
      this.close("the guest does not take what it is sent");
      return;
    }
    this.writer.write(bytes).then(
      () => (this.unsent -= bytes.length),
      (error: unknown) => this.close(text(error)),
    );
  }

  // note takes a text message.
  private note(message: string): void {
    let m: { begin?: Partial<Operation>; end?: Partial<End> };
    try {
      m = JSON.parse(message);
    } catch {
      m = {};
    }
    const { begin, end } = m;
    if (isOperation(begin)) {
      this.open.set(begin.id, begin);
      this.books.begin(begin);
      return;
    }
    const op = this.open.get(String(end?.id));
    if (end === undefined || op === undefined) return; // a message of a later release, or an end that was told before
    this.open.delete(op.id);
    const told = this.told.then(() => this.settle(op, end.left === true ? null : (end as Result)));
    this.told = told.then(() => {
      if (!this.closed) this.client.send(JSON.stringify({ ended: op.id }));
    });
  }

  private async settle(op: Operation, result: Result | null): Promise<void> {
    await this.books.end(op, result).catch((error: unknown) => console.error(`operation ${op.id}: record its end: ${text(error)}`));
  }
}

function isOperation(o: Partial<Operation> | undefined): o is Operation {
  return (
    o !== undefined &&
    typeof o.id === "string" &&
    isBetween(o.limit_ms, 1, maxLimit) &&
    typeof o.detached === "boolean" &&
    typeof o.quiet === "boolean"
  );
}
