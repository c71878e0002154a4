// The image and size that each start of a sandbox chooses under the scheduling policy durable_object. The Go side is
// Choice in scheduling.go.

import { Failure } from "./errors";

export interface Choice {
  // image is a reference with a digest. The deployment names the image by the first 32 digits of the digest.
  image: string;
  instance: NonNullable<ContainerStartupOptions["instance"]>;
}

// sizes are the sizes that a start may name. The platform rejects basic.
const sizes = ["lite", "standard-1", "standard-2", "standard-3", "standard-4"];

type Options = Pick<ContainerStartupOptions, "instance"> & ({ image: string } | { containerSnapshot?: ContainerSnapshotRestoreParams });

// options returns the options of a start, from a snapshot if there is one. Without a choice the application's image and
// size apply.
export function options(container: Container, choice: Choice | undefined, snapshot: string | null): Options {
  if (snapshot !== null) return { containerSnapshot: { id: snapshot }, ...(choice && { instance: choice.instance }) };
  if (choice === undefined) return {};
  const image = container.images[nameOf(choice.image)];
  if (image === undefined) {
    const why = "is not in the deployment (apply the environment again)";
    throw new Failure("unavailable", `its image ${choice.image} ${why}`);
  }
  return { image, instance: choice.instance };
}

function nameOf(image: string): string {
  return /@sha256:([0-9a-f]{32})[0-9a-f]{32}$/.exec(image)?.[1] ?? "";
}

export function isChoice(v: unknown): v is Choice {
  if (typeof v !== "object" || v === null) return false;
  const { image, instance } = v as Partial<Record<keyof Choice, unknown>>;
  if (typeof image !== "string" || nameOf(image) === "") return false;
  return typeof instance === "string" ? sizes.includes(instance) : isSize(instance);
}

function isSize(v: unknown): boolean {
  if (typeof v !== "object" || v === null) return false;
  const size = v as Record<string, unknown>;
  return ["vcpu", "memoryMib", "diskMb"].every((name) => typeof size[name] === "number" && size[name] > 0);
}
