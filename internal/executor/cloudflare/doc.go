// Package cloudflare runs sandboxes on Cloudflare Containers, through a Worker of our own (worker/, in
// TypeScript): one Durable Object for each sandbox, on a container whose image has our guest.
//
//	Worker (this package) ──signed HTTPS──> Worker ──> Durable Object ──exec──> guest in the container
//
// Executor is a sandbox.Executor over one account: it has environments deployed by a Deployer, finds their Workers
// by name, and speaks to each through a Worker. A sandbox falls asleep and ends by the alarm of its Durable Object
// when nobody else is there; /data outlives its container; and its starts, stops and CPU time are recorded, which
// is what the ledger bills (sandbox.Capabilities.Records), as far as the clocks agree: none of it was before the
// lease began or is to come. Check refuses what this backend does not do (sandbox.EnvironmentSpec.Unsupported).
// pids_limit is not used.
//
// Limits are those of a lease and a grace (Config.Grace), so that a reconciler, where one runs, comes first. A use
// that goes through the Worker it sees; others, such as a lease that is renewed, and changed limits it is told
// (Renew). What it has put to rest or ended by itself is told as a rest (sandbox.Observation.Rest): the ledger
// decides whether the lease has ended.
//
// # What is kept
//
// A container's disk ends with it. /data alone is kept: it is packed into an object in R2 when a command or a
// transfer has ended and has changed it, before its caller hears of that, so that a crash loses one turn at
// most; and before a container is stopped, once its programs have ended. Before the first command of every start it
// is unpacked. Whether it has changed the guest tells with each result, by a fingerprint that reads no file. While
// it is packed every process stands still and no command begins, so that it is one moment's. It may have 512 MiB: a
// sandbox with more cannot be put to sleep, which says why, and a crash loses all since. What is written after
// the last command is lost at the deadline, as in a crash.
//
// The guest packs as user 0, who may read all files and stop the processes of every user. It leaves out links that
// lead out of /data, sockets, pipes and devices.
//
// # The copy
//
// Nobody can list Durable Objects by name, or ask one without waking it: so each writes how its sandbox stands to
// D1, and that is listed. It is written before a sandbox is first started, and again at every start, stop and renewal;
// an alarm tells it of commands, and tries again what has failed. Beside it stands sandbox_leases, a row for each agent in an environment,
// which nothing here reads: the ledger decides, and the row is for whoever wants to see leases in Cloudflare.
//
// # One guest on both backends
//
// What happens inside of a container is not written again in TypeScript: the image has the program that is
// process 1 and helper of every Docker sandbox (internal/guest), and the Worker runs it by ctx.container.exec,
// as the Docker executor does by the engine's exec. Of its frames the Worker reads the last alone, which says how a run ended. So commands,
// their timeouts, what is kept of their output, and files are the same code, tested once. A port of its own
// into the container was the other way: it would need its own authentication against sandboxed code, where exec
// comes from outside.
//
// # A run
//
// A run of the guest is one request, whose body and answer are streamed at once. The body is signed in chunks
// (signature.go): the call, then its standard input, then a chunk without content, which is its end. The body
// itself stays open until the answer is complete: when it ends before, the caller has left, and what runs keeps
// the sandbox awake no longer, unless it is detached. The Durable Object reads a guest's output to its end even
// when nobody takes it: an engine may hold back the end of a container until then.
//
// # Time
//
// Three things end a container: the guest, at the deadline, with the clock of its machine; the Durable Object's
// alarm, at the deadline, when it was not used for its ttl or for sleep_after; and whoever asks. A sandbox whose
// deadline or ttl has passed never starts again. The first word about a stop stands in its period.
//
// The platform ends a container a while after its Durable Object was last active. That while is set at each start, by
// each new object and at each alarm, and an alarm comes three times in it (worker/src/container.ts). No monitor() is
// pending while an object waits: it would be billed for that. So a container that ends by itself is found by the next
// request or alarm, and its period ends at the last proof of life.
//
// # Keys
//
// A Worker accepts two keys while they are rotated (keyring.go), and answers name them. A request that it refuses is
// signed with the next key.
package cloudflare
