// Relays the WebSockets of clients to the port of the container, as section 10 of internal/channel/PROTOCOL.md
// describes.

import { Failure, text } from "./errors";
import type { Result } from "./frames";
import { open, type Key, purposeCarrier } from "./port";
import { isBetween } from "./settings";

// maxLimit is 25 h in milliseconds. An operation takes at most 24 h (run.go).
const maxLimit = 25 * 3600_000;

// nonceLife is how long this object remembers a nonce, in milliseconds. It is longer than a signature is valid: 60 s in
// each direction (signature.ts).
const nonceLife = 150_000;

// maxUnsent bounds the bytes of a WebSocket that wait for the container. A session has at most 33 MiB unacknowledged.
const maxUnsent = 40 << 20;

// Operation is an operation that a client reports as running.
export interface Operation {
  id: string;
  limit_ms: number;
  detached: boolean;
  quiet: boolean;
}

// End is a client's report that an operation has ended.
interface End extends Partial<Result> {
  id: string;
  // left: the caller is gone; the operation may still run.
  left?: boolean;
}

// Books receives the reports of clients.
export interface Books {
  // connected is called before a WebSocket opens, idle after the last one has closed.
  connected(): void;
  idle(): Promise<void>;
  begin(op: Operation): void;
  // end is called once for each begin. result is null if the caller is gone or the WebSocket broke.
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

  // accept opens a WebSocket, after it has connected to the container.
  async accept(request: Request, now: number): Promise<Response> {
    if (request.headers.get("Upgrade")?.toLowerCase() !== "websocket") {
      throw new Failure("invalid", "open a channel: the request must have the header Upgrade: websocket");
    }
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

  // close ends all connections. Clients dial again.
  close(why: string): void {
    for (const relay of this.sockets) relay.close(why);
  }

  // takeOnce rejects a replayed request: its sender could run commands through the channel.
  private takeOnce(nonce: string, now: number): void {
    for (const [old, at] of this.nonces) if (at + nonceLife < now) this.nonces.delete(old);
    if (nonce.length < 16 || nonce.length > 64 || this.nonces.has(nonce)) {
      throw new Failure("invalid", "open a channel: the nonce must have 16 to 64 characters, and be used only once");
    }
    this.nonces.set(nonce, now);
  }
}

// Relay connects one WebSocket to the port.
class Relay {
  private readonly open = new Map<string, Operation>();
  private readonly writer: WritableStreamDefaultWriter<Uint8Array>;
  private unsent = 0;
  private closed = false;
  // told resolves when the last reported end is recorded. It never rejects.
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
    client.addEventListener("error", () => this.close("the connection of the client failed"));
    client.accept();
  }

  // run relays what the guest sends until either side closes. It never rejects.
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
    this.socket.close().catch(() => undefined); // it may have failed already
    try {
      this.client.close(1001, why.slice(0, 100));
    } catch {
      // the client has closed it
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
      this.close("the guest reads too slowly");
      return;
    }
    this.writer.write(bytes).then(
      () => (this.unsent -= bytes.length),
      (error: unknown) => this.close(text(error)),
    );
  }

  // note handles a text message of the client.
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
    if (end === undefined || op === undefined) return; // a message from a later release, or a repeated end
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
