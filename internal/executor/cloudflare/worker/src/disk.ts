// The disk of a container outlives a sleep as a snapshot, if the sandbox's environment asks for it. Only the start
// after that sleep uses the snapshot. The platform deletes it 30 days after it was taken; nothing else can delete it.

import { asFailure, text } from "./errors";
import type { Settings } from "./settings";
import type { Store } from "./store";
import { whileRuns } from "./wait";

// saveLimit is the timeout of a snapshot, in milliseconds. Meanwhile the container runs and is billed.
const saveLimit = 60_000;

// life is how long the platform keeps a snapshot, in milliseconds: 30 days
// (developers.cloudflare.com/containers/guides/snapshots, read 2026-11).
const life = 30 * 24 * 3600_000;

export class Disk {
  constructor(
    private readonly container: Container,
    private readonly store: Store,
    private readonly now: () => number,
  ) {}

  // save takes a snapshot of a container whose programs have ended. If it fails, the disk is lost, but the sleep goes
  // on.
  async save(settings: Settings): Promise<void> {
    if (!settings.keep_disk) return;
    try {
      const saving = this.container.snapshotContainer();
      const { id } = await whileRuns(this.container, saving, saveLimit, "the platform");
      this.store.keepDisk(id, imageOf(settings), this.now());
    } catch (error) {
      this.store.loseDisk(`its snapshot failed: ${text(error)}`);
    }
  }

  // start calls begin with the snapshot of the last sleep, and without one if there is none or it cannot be restored.
  // If there is no room for a container, the snapshot stays for the next start.
  async start(settings: Settings, begin: (snapshot: string | null) => Promise<void>): Promise<void> {
    const snapshot = this.usable(settings);
    if (snapshot !== null) {
      try {
        await begin(snapshot);
        this.store.useDisk();
        return;
      } catch (error) {
        const failure = asFailure(error);
        if (failure.code !== "failed") throw error;
        this.store.loseDisk(`its snapshot could not be restored: ${failure.message}`);
      }
    }
    await begin(null);
  }

  private usable(settings: Settings): string | null {
    const disk = this.store.disk();
    if (disk === null || disk.snapshot === "") return null;
    if (disk.image !== imageOf(settings)) this.store.loseDisk("its snapshot is of another image");
    else if (this.now() >= disk.saved_at + life) this.store.loseDisk("its snapshot has expired after 30 days");
    else return disk.snapshot;
    return null;
  }
}

function imageOf({ choice }: Settings): string {
  return choice?.image ?? "";
}
