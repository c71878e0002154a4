// /data outlives the container's disk. It is saved as one object in R2: a tar stream that the guest packs.

import { Failure, text } from "./errors";
import { concat, cpuOf, type Result } from "./frames";
import { base64, type Key, work } from "./port";
import type { Store } from "./store";
import { whileRuns } from "./wait";

// empty is the fingerprint of an empty /data (internal/guest/wire).
export const empty = "empty";

const directory = "/data";

// noFiles is an empty tar archive.
const noFiles = new Uint8Array(1024);

// saves are the occasions of a save. limit is the maximum size of /data, in bytes, and timeout is in milliseconds.
//
// The sandbox is frozen while the guest packs /data, for at most 2 min. After a command the freeze must be short, so a
// larger /data waits for the stop. Before a stop all programs have ended, so nothing is frozen.
const saves = {
  command: { limit: 512 * 2 ** 20, timeout: 120_000, end: false },
  read: { limit: 4 * 2 ** 30, timeout: 120_000, end: false },
  stop: { limit: 4 * 2 ** 30, timeout: 600_000, end: true },
};

// restoreLimit is the timeout of a restore, in milliseconds.
const restoreLimit = 600_000;

// partSize is how much of an object this Worker buffers, in bytes. R2 requires parts of 5 MiB or more, all of one size.
const partSize = 8 << 20;

export class Data {
  constructor(
    private readonly container: Container,
    private readonly key: Key,
    private readonly bucket: R2Bucket,
    private readonly store: Store,
    private readonly now: () => number,
  ) {}

  // changed reports whether /data may differ from the saved one after an operation with this result. An operation may
  // change /data before it fails.
  changed(result: Result): boolean {
    return result.data === undefined || result.data !== this.store.saved();
  }

  // save saves /data while nothing else runs, unless it is unchanged since the last save. At a stop, the guest ends every
  // program first.
  async save(name: string, occasion: keyof typeof saves): Promise<void> {
    const { limit, timeout, end } = saves[occasion];
    const upload = new Upload(this.bucket, objectOf(name));
    const request = { op: "save", path: base64(directory), save: { unless: this.store.saved(), limit, end } };
    try {
      const saving = work(this.container, this.key, { request, take: (payload) => upload.write(payload), last: end });
      const result = await whileRuns(this.container, saving, timeout, "the guest");
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

  // restore unpacks the saved /data into a container that has just started, whose /data is empty. With kept, the disk
  // already has the saved /data, and restore only updates the fingerprint.
  async restore(name: string, kept: boolean): Promise<void> {
    if (this.store.saved() === empty) return;
    const input = async () => {
      const archive = kept ? new Response(noFiles) : await this.bucket.get(objectOf(name));
      if (archive === null || archive.body === null) throw new Error("restore /data: the saved object is missing from R2");
      return archive.body;
    };
    const request = { op: "put", path: base64(directory), report_data: true };
    const restoring = work(this.container, this.key, { request, input });
    const { data = "" } = await whileRuns(this.container, restoring, restoreLimit, "the guest");
    this.store.setSaved(data, this.store.savedAt());
  }

  // read returns the saved /data, or an empty archive if nothing was saved.
  async read(name: string): Promise<Response> {
    const object = await this.bucket.get(objectOf(name));
    const headers = { "Content-Type": "application/x-tar" };
    return object === null ? new Response(noFiles, { headers }) : new Response(object.body, { headers });
  }

  async remove(name: string): Promise<void> {
    await this.bucket.delete(objectOf(name));
  }
}

// objectOf returns the key of a sandbox's object.
function objectOf(name: string): string {
  return `${name}/data.tar`;
}

// Upload writes an object whose size is not known in advance. The object appears whole and replaces an older one.
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
    if (this.aborted) throw new Error("the upload was aborted");
    for (let rest = p; rest.length > 0; ) {
      const taken = rest.slice(0, partSize - this.size); // a copy, because the stream may reuse its buffer
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
    this.aborted = true; // write refuses the rest of a save that timed out
    await this.multipart?.abort().catch(() => undefined); // R2 aborts it by itself after a week
  }

  private async send(): Promise<void> {
    this.multipart ??= await this.bucket.createMultipartUpload(this.name);
    const part = concat(this.pending);
    this.pending = [];
    this.size = 0;
    this.parts.push(await this.multipart.uploadPart(this.parts.length + 1, part));
  }
}
