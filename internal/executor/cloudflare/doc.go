// Package cloudflare runs sandboxes on Cloudflare Containers, through a Worker of our own (worker/, in
// TypeScript): one Durable Object for each sandbox, on a container whose image has our guest.
//
//	Worker (this package) ──signed HTTPS, WebSocket──> Worker ──> Durable Object ──port──> guest in the container
//
// Executor is a driver.Executor over one account. A Deployer deploys environments. Executor finds their Workers by name
// and calls each through a Worker. An environment has a Worker of its own, or shares that of its ledger (place.go).
// Without a reconciler, the alarm of a sandbox's Durable Object puts the sandbox to sleep and ends it. /data outlives
// the container. Recorded starts, stops and CPU time are what the ledger bills (driver.Capabilities.Records), cut to
// the time between the lease's begin and now, because clocks may differ. Check rejects what this backend does not
// support (sandbox.EnvironmentSpec.Unsupported). pids_limit is not used.
//
// Limits are those of a lease plus a grace (Config.Grace), so that a running reconciler acts first. The Worker sees
// uses that go through it. Renew reports others, such as the renewal of a lease, and changed limits. A sandbox that the
// Worker itself stopped counts as resting (driver.Observation.Rest): the ledger decides whether the lease has ended.
//
// # Image and size
//
// An environment is created with a scheduling policy, which its container application keeps for ever (scheduling.go).
// Under PolicyDefault the application has one image and one size. Under PolicyDurableObject a sandbox keeps the image
// and size of its creation (Choice): its Durable Object names both at each start. Under PolicyDefault a rollout leaves
// a container alone until it has run for RolloutGrace, the longest that Cloudflare allows, and plans name the leases
// whose containers may run that long. Rollouts that wait for a caller (kind full_manual) would keep new containers on
// the old image, too. Environments of PolicyDurableObject share one deployment per ledger: a Worker, its Durable
// Objects, an application, a database and a bucket. Rows of D1 list these environments with their current images
// (worker/src/environments.ts).
//
// The Worker is uploaded with the images that starts may name: those that sandboxes need, by the copy in D1, and those
// of its environments, current and before the last change. Variables of the Worker record what was uploaded. shared.go
// describes concurrent changes of environments.
//
// # What is kept
//
// A container's disk ends with it. /data is kept: it is packed into an object in R2 when a command or a transfer that
// changed it has ended, before the caller gets the result, so that a crash loses one turn at most; and before a
// container is stopped, once its programs have ended. It is unpacked before the first command of every start. With each
// result the guest reports whether /data has changed, by a fingerprint that reads no file. While /data is packed, all
// processes are frozen and no command begins, so the object is consistent. Beyond 512 MiB /data is saved before a stop
// only, so a crash loses all changes since the last one. Beyond 4 GiB, putting the sandbox to sleep fails with that
// reason. Changes after the last command are lost at the deadline, as in a crash. The end of a detached command whose
// caller is gone is found by the next alarm, which saves what it left.
//
// Under PolicyDurableObject a sandbox may also keep its whole disk while it sleeps (driver.SandboxSpec.KeepDisk): once
// /data is saved, the Durable Object takes a snapshot of the container, and the next start restores it
// (worker/src/disk.ts). Only that start does: after a crash an older disk would not fit the newer /data. If there is no
// usable snapshot, the sandbox starts from its image, and says why.
//
// The guest packs files whatever their modes say, and stops the processes of every user meanwhile. It leaves out links
// that lead out of /data, sockets, pipes and devices.
//
// # The copy
//
// Durable Objects cannot be listed by name, or read without waking them: so each writes the status of its sandbox to
// D1, and that is listed. It is written before a sandbox is first started, and again at every start, stop and renewal;
// an alarm tells it of commands, and tries again what has failed. Objects that write at the same time share a call of
// D1 (worker/src/writes.ts). A version keeps a late write from replacing a newer one. Beside it stands
// sandbox_leases, a row for each agent in an environment, which nothing here reads: the ledger decides, and the row is
// for people who look at leases in Cloudflare.
//
// # One guest on both backends
//
// Process 1 of a container is the guest of every Docker sandbox (internal/guest), with its broker. Commands, their
// timeouts, what is kept of their output, and files are the same code, and so is the channel to it (internal/channel).
// On Docker a socket leads to the broker. Here a TCP port does, which code of the sandbox reaches too: a key
// authenticates each connection. Section 10 of internal/channel/PROTOCOL.md describes the port, its key, and what is
// done about floods.
//
// # A channel
//
// Operations travel on a session of the channel, whose carrier is a WebSocket that the Durable Object relays to the
// port. No request is answered before its body is complete, so proxies may buffer. A session outlives its
// WebSocket: a command runs on through a deployment of the Worker, and its caller gets the result. The WebSocket
// opens for an operation and closes 10 s after the last, because it keeps the object in memory and billed. The
// object sees bytes only: the client tells it in text messages what is under way, for idle sleep, and how it ended,
// for CPU time and /data.
//
// A command costs no request of its own while a WebSocket is open, and no row of D1. A WebSocket costs two rows of the
// object's storage, and each second of CPU time one.
//
// # The way out
//
// A sandbox whose network is restricted starts without Internet access, and the platform gives each of its HTTP and
// HTTPS requests to the Worker's entrypoint Outbound (worker/src/outbound.ts). Outbound asks the sandbox's Durable
// Object, which decides by the environment's rules and logs the attempt (attempts.ts), makes the request, and tells the
// object how it ended. The content never passes the object. Rules and logs are rows of D1 by ledger and environment
// (networks.ts): Provision sets the rules, objects read them again every two seconds, and EgressLog reads the log. No
// rules let nothing out.
//
// # Models
//
// A sandbox calls models at the host llm.sandbox.internal. Outbound passes these requests to the sandbox's Durable
// Object, which makes the calls (worker/src/llm/calls.ts): so a call and the object that settles it end together, and a
// call that runs by the journal but not in its object is lost, and costs what it reserved. Reading the journal asks the
// objects of such calls.
//
// Routes with their keys (encrypted, seal.ts), the journal and the sums for limits are rows of D1 by ledger and
// environment (book.ts), not a Durable Object for each environment. One transaction checks all limits and writes the
// record of the call, the ledger reads the journal without waking an object, and the Worker needs no second class. What
// is checked and metered is that of internal/gateway/llm; a file of calls runs on both.
//
// # Time
//
// Three things end a container: the guest, at the deadline, with the clock of its machine; the Durable Object's
// alarm, at the deadline, when it was not used for its ttl or for sleep_after; and a caller. A sandbox whose
// deadline or ttl has passed never starts again. The first word about a stop stands in its period.
//
// The platform ends a container a while after its Durable Object was last active. That while is set at each start, by
// each new object and at each alarm, and an alarm comes three times in it (worker/src/container.ts). No monitor() is
// pending while an object waits: it would be billed for that. So a container that ends by itself is found by the next
// request or alarm, and its period ends at the last proof of life.
//
// Nothing else keeps an object that waits in memory either. The alarm of an idle sandbox keeps it there for 11 s of 5
// minutes, 3.6 % of the time: measured on the local runtime, which removes an object 10 s after its last event, as
// Cloudflare does (memory_test.go).
//
// # Lists instead of messages
//
// A reconciler pulls starts, stops, uses and CPU time: it reads the list of the copy every Config.Poll. The objects
// write that list, at starts, stops and alarms; commands do not. So no address of the reconciler is needed, and no
// message can be lost: what one list misses the next one has, and what an object cannot write its alarm writes 30 s
// later. Each list is the whole state, so there are no acknowledgements, and the list is its own survey. Environments
// that share a Worker have one list: requests grow neither with environments nor, but for pages of 500, with
// sandboxes.
//
// With 10,000 sandboxes and 5 % of all messages lost on both sides, no end of 500 was missed (crowd_test.go, on the
// local runtime). 481 objects wrote theirs at once, 52 a second with a call each; 19 did by their alarms. The
// reconciler read 5,000 rows a second. 10,000 sandboxes are 20 requests and 10,000 rows each time, which costs $4.20
// a month at the list prices of November 2026.
//
// A hub with a hibernating WebSocket was not chosen. A change costs a request to the hub beside its row of D1. The
// hub serves all objects of a ledger, one after the other, and needs an outbox, acknowledgements and this list as a
// backstop. It would save up to Config.Poll until a change is seen.
//
// # Calls of the API
//
// Few calls of List, and requests of Workers, are all a reconciler needs but for deployments: their number does not
// grow with environments (sites.go, Executor.ask). Package deploy paces those of deployments.
//
// # Keys
//
// A Worker accepts two keys while they are rotated (keyring.go), and answers name them. A request that it refuses is
// signed with the next key.
package cloudflare
