// Package cloudflare runs sandboxes on Cloudflare Containers, through a Worker of our own (worker/, in
// TypeScript): one Durable Object for each sandbox, on a container whose image has our guest.
//
//	Worker (this package) ──signed HTTPS──> Worker ──> Durable Object ──exec──> guest in the container
//
// It is not a backend yet, and an environment with backend = "cloudflare" is refused. What is here works by
// itself: a sandbox is made, looked at without waking it, put to sleep, woken and ended; commands run in it,
// streamed, and can be followed by another caller; it falls asleep and ends by the alarm of its Durable Object when nobody else is there; and its
// starts and stops are recorded. What is missing until it is a sandbox.Executor:
//
//   - /data is not kept: a sandbox that was stopped has an empty disk. Period.Incarnation tells;
//   - files, secrets and the export of /data. The guest does all of it already: each is a call of help;
//   - lists of a ledger's sandboxes, which need a database beside the Durable Objects, and watching them;
//   - warm pools, networks that are restricted, and deployment.
//
// # One guest on both backends
//
// What happens inside of a container is not written again in TypeScript: the image has the program that is
// process 1 and helper of every Docker sandbox (internal/guest), and the Worker runs it by ctx.container.exec,
// as the Docker executor does by the engine's exec. Its frames pass through the Worker unread. So commands,
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
package cloudflare
