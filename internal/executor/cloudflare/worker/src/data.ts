// What lies in /data, which outlives the disk: an object in R2, a tar stream as the guest packs it.

import { Failure, text } from "./errors";
import { concat, cpuOf, type Result } from "./frames";
import { base64, type Key, work } from "./port";
import type { Store } from "./store";
import { inTime } from "./wait";

// empty is the fingerprint of a /data that holds nothing (internal/guest/wire).
export const empty = "empty";

const directory = "/data";

// limit bounds what is kept, in bytes: while it is packed the sandbox stands still.
const limit = 512 << 20;

// saveLimit bounds a save, in milliseconds. The guest lets the sandbox stand still for 2 min at most.
const saveLimit = 120_000;

// partSize is what is held of an object at once, in bytes. R2 takes parts of 5 MiB or more, all of one size.
const partSize = 8 << 20;

export class Data {
  constructor(
    private readonly container: Container,
    private readonly key: Key,
    private readonly bucket: R2Bucket,
    private readonly store: Store,
    private readonly now: () => number,
  ) {}

  // changed reports whether a result tells of a /data that is not the one that was saved.
  changed(result: Result): boolean {
    return !result.problem && (result.data === undefined || result.data !== this.store.saved());
  }

  // save saves /data while nothing else runs, unless it is as it was saved. With end, every program is ended
  // before, as by a stop.
  async save(name: string, end: boolean): Promise<void> {
    const upload = new Upload(this.bucket, objectOf(name));
    const request = { op: "save", path: base64(directory), save: { unless: this.store.saved(), limit, end } };
    try {
      const saving = work(this.container, this.key, { request, take: (payload) => upload.write(payload) });
      const result = await inTime(saving, saveLimit, "the guest");
      const { data = "" } = result;
      this.store.used(cpuOf(result), this.now());
      if (data === "" || data !== this.store.saved()) {
        await upload.close();
        this.store.setSaved(data, this.now());
      }
    } catch (error) {
      await upload.abort();
      throw new Failure("failed", `save /data: ${text(error)}`, "sandbox_copy_failed");
    }
  }

  // restore unpacks what was saved into the empty /data of a container that has just started.
  async restore(name: string): Promise<void> {
    if (this.store.saved() === empty) return;
    const object = await this.bucket.get(objectOf(name));
    if (object === null) throw new Error("restore /data: what was saved of it is not there any more");
    const { data = "" } = await work(this.container, this.key, { request: { op: "put", path: base64(directory), report_data: true }, input: object.body });
    this.store.setSaved(data, this.store.savedAt());
  }

  // read returns what was saved, or an archive of nothing.
  async read(name: string): Promise<Response> {
    const object = await this.bucket.get(objectOf(name));
    const headers = { "Content-Type": "application/x-tar" };
    return object === null ? new Response(new Uint8Array(1024), { headers }) : new Response(object.body, { headers });
  }

  async remove(name: string): Promise<void> {
    await this.bucket.delete(objectOf(name));
  }
}

// objectOf names the object of a sandbox.
function objectOf(name: string): string {
  return `${name}/data.tar`;
}

// Upload writes an object of a size that nobody knows before. It appears whole, in place of an older one.
class Upload {
  private pending: Uint8Array[] = [];
  private size = 0;
  private multipart: R2MultipartUpload | null = null;
  private aborted = false;
  private readonly parts: R2UploadedPart[] = [];

  constructor(
    private readonly bucket: R2Bucket,
    private readonly name: string,
  ) {}

  async write(p: Uint8Array): Promise<void> {
    if (this.aborted) throw new Error("the upload was given up");
    for (let rest = p; rest.length > 0; ) {
      const taken = rest.slice(0, partSize - this.size); // the stream may use its buffer again
      this.pending.push(taken);
      this.size += taken.length;
      rest = rest.subarray(taken.length);
      if (this.size === partSize) await this.send();
    }
  }

  async close(): Promise<void> {
    if (this.multipart === null) {
      await this.bucket.put(this.name, concat(this.pending));
      return;
    }
    if (this.size > 0) await this.send();
    await this.multipart.complete(this.parts);
  }

  async abort(): Promise<void> {
    this.aborted = true; // what still comes of a save that took too long is not taken
    await this.multipart?.abort().catch(() => undefined); // R2 does so by itself after a week
  }

  private async send(): Promise<void> {
    this.multipart ??= await this.bucket.createMultipartUpload(this.name);
    const part = concat(this.pending);
    this.pending = [];
    this.size = 0;
    this.parts.push(await this.multipart.uploadPart(this.parts.length + 1, part));
  }
}
