
// Appended to the Worker. A sandbox's variable PLATFORM says what the platform does with its snapshots: "no snapshots",
// "slow" ones of an hour, "no room" for the first start from one, or "lost" ones. AGE makes a snapshot older by that many
// milliseconds, and OTHER_IMAGE has it be of another image.
{
  const answer = Sandbox.prototype.fetch;
  Sandbox.prototype.fetch = function (request) {
    const { container } = this.ctx;
    objects.set(container, this);
    changePlatform(Object.getPrototypeOf(container));
    return answer.call(this, request);
  };

  const keepDisk = Store.prototype.keepDisk;
  Store.prototype.keepDisk = function (snapshot, image, at) {
    const { AGE = 0, OTHER_IMAGE = image } = this.row().settings.env;
    keepDisk.call(this, snapshot, OTHER_IMAGE, at - Number(AGE));
  };

  const objects = new WeakMap(); // by container
  const refused = new Set(); // containers whose first start from a snapshot was refused
  let changed = false;

  function changePlatform(container) {
    if (changed) return;
    changed = true;
    const { start, snapshotContainer } = container;
    container.start = function (options) {
      const { PLATFORM } = options.env;
      if (options.containerSnapshot && PLATFORM === "lost") throw new Error("the snapshot does not exist");
      if (options.containerSnapshot && PLATFORM === "no room" && !refused.has(this)) {
        refused.add(this);
        throw new Error("There is no container instance that can be provided to this Durable Object, try again later");
      }
      start.call(this, options);
    };
    container.snapshotContainer = async function (options) {
      const { PLATFORM } = objects.get(this).store.row().settings.env;
      if (PLATFORM === "no snapshots") throw new Error("out of storage");
      if (PLATFORM === "slow") await scheduler.wait(3600_000);
      return snapshotContainer.call(this, options);
    };
  }
}
