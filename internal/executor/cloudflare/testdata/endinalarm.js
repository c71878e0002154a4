
// Appended to the Worker: a container ends while an alarm reads its usage, if its variable ENDS is set, or if its
// deadline is at that moment.
{
  const measure = Sandbox.prototype.measure;
  Sandbox.prototype.measure = async function () {
    await measure.call(this);
    const row = this.store.row();
    if (row === null) return;
    if (row.settings.env.ENDS) await this.ctx.container.destroy();
    while (deadline(row.settings) - Date.now() < 1000 && this.ctx.container.running) await scheduler.wait(10);
  };
}
