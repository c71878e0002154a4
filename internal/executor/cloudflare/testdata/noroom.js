
// Appended to the Worker: the platform refuses starts of a container, those whose numbers its variable REFUSED lists,
// and says REFUSAL.
const answer = Sandbox.prototype.fetch;
Sandbox.prototype.fetch = function (request) {
  refuseStarts(Object.getPrototypeOf(this.ctx.container));
  return answer.call(this, request);
};

let refuses = false;
const starts = new Map(); // by sandbox

function refuseStarts(container) {
  if (refuses) return;
  refuses = true;
  const start = container.start;
  container.start = function (options) {
    const { REFUSED = "", REFUSAL } = options.env;
    const number = (starts.get(options.labels.sandbox) ?? 0) + 1;
    starts.set(options.labels.sandbox, number);
    if (REFUSED.split(" ").includes(String(number))) throw new Error(REFUSAL);
    return start.call(this, options);
  };
}
