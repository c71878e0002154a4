// Batches the D1 writes of all Durable Objects in this isolate: writes that wait at the same time share one call. D1
// bills rows, so this saves no money. But D1 runs one call after the other, so a burst of single calls would queue
// there and be refused. On the local runtime 200 starts take 10 calls instead of 400, and 200 ends 6 instead of 200.
//
// The promises of a call belong to the object that makes it. The runtime resumes each waiting object in that object's
// own context (handle_cross_request_promise_resolution), but never if the calling object was reset. So each waiting
// object has a timer, and its storage marks its write as owed until D1 has it.

import { text } from "./errors";
import { prepare } from "./tables";
import { within } from "./wait";

// Write is what one object writes. call is the call with its statements; null while it waits for one.
interface Write {
  statements: D1PreparedStatement[];
  call: Call | null;
}

// Call is a call of D1. The object that makes it sets beat every pulse until it ends.
interface Call {
  end: Promise<void>; // never rejects
  beat: number;
  written: boolean;
}

// most is the maximum number of writes in one call. A request to an object may make 1,000 queries.
const most = 100;

// pulse and silence are in milliseconds. After a silence the object that makes a call counts as gone.
const pulse = 1000;
const silence = 5 * pulse;

const queues = new WeakMap<D1Database, Writes>();

// writesTo returns the shared queue of writes to a database that has the tables of schema.
export function writesTo(db: D1Database, schema: readonly string[]): Writes {
  const writes = queues.get(db) ?? new Writes(db, schema);
  queues.set(db, writes);
  return writes;
}

class Writes {
  private waiting: Write[] = [];
  private call: Call | null = null;

  constructor(
    private readonly db: D1Database,
    private readonly schema: readonly string[],
  ) {}

  // put runs the statements in one transaction. The caller must first sync its storage: the platform holds back an
  // object's own calls until then, but another object may make this call.
  async put(statements: D1PreparedStatement[]): Promise<void> {
    const mine: Write = { statements, call: null };
    this.waiting.push(mine);
    while (mine.call === null) await this.follow((this.call ??= this.begin()));
    await this.follow(mine.call);
    // Another object may have caused the failure, so this one retries alone.
    if (!mine.call.written) await this.send([mine]);
  }

  // follow returns when a call has ended, or when the object that makes it is gone. The waiting object has its own
  // timers, so it can continue without any other object.
  private async follow(call: Call): Promise<void> {
    while (!(await within(call.end, pulse))) {
      if (Date.now() - call.beat <= silence) continue;
      if (this.call === call) this.call = null;
      return;
    }
  }

  // begin starts a call with the writes that have waited longest.
  private begin(): Call {
    const call: Call = { end: Promise.resolve(), beat: Date.now(), written: false };
    const writes = this.waiting.splice(0, most);
    for (const write of writes) write.call = call;
    call.end = this.run(call, writes);
    return call;
  }

  private async run(call: Call, writes: Write[]): Promise<void> {
    const beat = setInterval(() => (call.beat = Date.now()), pulse);
    try {
      await this.send(writes);
      call.written = true;
    } catch (error) {
      console.error(`${writes.length} writes to D1: ${text(error)}`); // each object tries again
    }
    clearInterval(beat);
    if (this.call === call) this.call = null;
  }

  private async send(writes: Write[]): Promise<void> {
    await prepare(this.db, this.schema);
    await this.db.batch(writes.flatMap(({ statements }) => statements));
  }
}
