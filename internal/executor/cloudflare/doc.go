// Package cloudflare runs sandboxes on Cloudflare Containers, through a Worker of our own (worker/, in
// TypeScript): one Durable Object for each sandbox, on a container whose image has our guest.
//
//	Worker (this package) ──signed HTTPS, WebSocket──> Worker ──> Durable Object ──port──> guest in the container
//
// Executor is a driver.Executor over one account. A Deployer deploys environments. Executor finds their Workers by name
// and calls each through a Worker. An environment has a Worker of its own, or shares that of its ledger (place.go).
// Without a reconciler, the alarm of a sandbox's Durable Object puts the sandbox to sleep and ends it. /data outlives
// the container. The ledger bills recorded starts, stops and CPU time (driver.Capabilities.Records), cut to the time
// between the lease's beginning and now, because clocks may differ. Check rejects settings that this backend does not
// support (sandbox.EnvironmentSpec.Unsupported). pids_limit is not used.
//
// Limits are those of a lease plus a grace (Config.Grace), so that a running reconciler acts first. The Worker sees
// uses that go through it. Touch reports others, such as the renewal of a lease, and changed limits. A sandbox that the
// Worker itself stopped counts as resting (driver.Observation.Rest): the ledger decides whether the lease has ended.
//
// # Image and size
//
// An environment is created with a scheduling policy, which its container application keeps forever (scheduling.go).
// Under PolicyDefault the application has one image and one size. Under PolicyDurableObject a sandbox keeps the image
// and size of its creation (Choice): its Durable Object names both at each start. Under PolicyDefault a rollout leaves
// a container alone until it has run for RolloutGrace, the longest that Cloudflare allows, and plans name the leases
// whose containers may run that long. Rollouts that wait for a caller (kind full_manual) would keep new containers on
// the old image, too. Environments of PolicyDurableObject share one deployment per ledger: a Worker, its Durable
// Objects, an application, a database and a bucket. Rows of D1 list these environments with their current images
// (worker/src/environments.ts).
//
// The Worker is uploaded with the images that starts may name: those that sandboxes need, by the copy in D1, and the
// current and previous images of its environments. Variables of the Worker record these images. shared.go describes
// concurrent changes of environments.
//
// # Kept data
//
// A container's disk ends with it. /data is kept. It is packed into an object in R2 after each command or transfer that
// changed it, before the caller gets the result, so a crash loses at most one turn. It is also packed before a
// container is stopped, once its programs have ended. It is unpacked before the first command of every start. A
// container whose start was interrupted before that is ended, so nothing uses or saves its incomplete /data. With each
// result the guest reports whether /data has changed, by a fingerprint that reads no file. While /data is packed, all
// processes are frozen and no command begins, so the object is consistent. Beyond 512 MiB /data is saved only before a
// stop, so a crash loses all changes since the last stop. Beyond 4 GiB, putting the sandbox to sleep fails with that
// reason. Changes after the last command are lost at the deadline, as in a crash. If the caller of a detached command
// is gone, the next alarm finds the command's end and saves its changes.
//
// Under PolicyDurableObject a sandbox may also keep its whole disk while it sleeps (driver.SandboxSpec.KeepDisk): once
// /data is saved, the Durable Object takes a snapshot of the container, and the next start restores it
// (worker/src/disk.ts). Only that start does: after a crash an older disk would not fit the newer /data. Without a
// usable snapshot, the sandbox starts from its image and reports why.
//
// The guest packs files regardless of their modes, and stops the processes of all users meanwhile. It leaves out links
// that lead out of /data, sockets, pipes and devices.
//
// # The copy
//
// Durable Objects cannot be listed by name, or read without waking them. So each writes the status of its sandbox to
// D1, and lists read this copy. An object writes before the first start of its sandbox, and at every start, stop and
// renewal. Its alarm adds the effects of commands and retries failed writes. Objects that write at the same time share
// a call of D1 (worker/src/writes.ts). A version keeps a late write from replacing a newer one. The table
// sandbox_leases has a row for each agent in an environment. Nothing here reads it, because the ledger decides: it is
// for people who look at leases in Cloudflare.
//
// # One guest on both backends
//
// Process 1 of a container is the guest of every Docker sandbox (internal/guest), with its broker. Both backends share
// the code for commands, timeouts, kept output and files, and the channel to the guest (internal/channel). On Docker
// the channel uses a socket of the broker. Here it uses a TCP port, which code in the sandbox can reach too, so a key
// authenticates each connection. Section 10 of internal/channel/PROTOCOL.md describes the port, its key, and the
// protection against floods.
//
// # A channel
//
// Operations travel on a session of the channel, whose carrier is a WebSocket that the Durable Object relays to the
// port. No request is answered before its body is complete, so proxies may buffer. A session outlives its WebSocket: a
// command runs on through a deployment of the Worker, and its caller gets the result. The WebSocket opens for an
// operation and closes 10 s after the last, because it keeps the object in memory and billed. The object sees only
// bytes. So the client sends it text messages when operations begin, for idle sleep, and when they end, for CPU time
// and /data.
//
// A command costs no row of D1, and no request of its own while a WebSocket is open. A WebSocket costs two rows of the
// object's storage, and each second of CPU time costs one.
//
// # Outbound traffic
//
// A sandbox whose network is restricted starts without Internet access, and the platform gives each of its HTTP and
// HTTPS requests to the Worker's entrypoint Outbound (worker/src/outbound.ts). Outbound asks the sandbox's Durable
// Object, which decides by the environment's rules and logs the attempt (attempts.ts), makes the request, and tells the
// object how it ended. The content never passes the object. Rules and logs are rows of D1 by ledger and environment
// (networks.ts): Provision sets the rules, objects read them again every two seconds, and EgressLog reads the log.
// Without rules, nothing gets out.
//
// # Models
//
// A sandbox calls models at the host llm.sandbox.internal. Outbound passes these requests to the sandbox's Durable
// Object, which makes the calls (worker/src/llm/calls.ts): so a call ends with the object that settles it. A call that
// runs in the journal but not in its object is lost, and costs the reserved amount. Reading the journal asks the
// objects of such calls.
//
// Routes with their keys (encrypted, seal.ts), the journal and the sums for limits are rows of D1 by ledger and
// environment (book.ts), not a Durable Object for each environment. One transaction checks all limits and writes the
// record of the call, the ledger reads the journal without waking an object, and the Worker needs no second class.
// Checks and metering match internal/gateway/llm: a shared file of test calls runs on both.
//
// # Time
//
// Three things end a container: the guest, at the deadline by the clock of its machine; the Durable Object's alarm, at
// the deadline or after ttl or sleep_after without use; and a caller. A sandbox whose deadline has passed never starts
// again, one whose ttl has passed only after a Touch. A period keeps the first recorded cause of its stop.
//
// The platform ends a container after an inactivity timeout of its Durable Object. Each start, each new object and each
// alarm sets this timeout, which is three times as long as the pace of alarms (worker/src/container.ts). No monitor()
// is pending while an object waits, because that would be billed. So the next request or alarm finds a container that
// ended by itself, and its period ends at the last proof of life.
//
// Nothing else keeps a waiting object in memory. The alarm of an idle sandbox keeps it there for 11 s of 5 minutes, 3.6
// % of the time: measured on the local runtime, which removes an object 10 s after its last event, as Cloudflare does
// (memory_test.go).
//
// # Lists instead of messages
//
// A reconciler pulls starts, stops, uses and CPU time: it reads the list of the copy every Config.Poll. The objects
// write that list, at starts, stops and alarms; commands do not. So the reconciler needs no address, and no message can
// be lost: the next list has what one list misses, and an object's alarm retries a failed write 30 s later. Each list
// is the whole state, so it needs no acknowledgements and no separate resync. Environments that share a Worker have one
// list. The number of requests does not grow with environments, and with sandboxes only by pages of 500.
//
// With 10,000 sandboxes and 5 % of all messages lost on both sides, none of 500 ends was missed (crowd_test.go, on the
// local runtime). 481 objects wrote theirs immediately, 52 a second with a call each; the other 19 wrote theirs by
// alarms. The reconciler read 5,000 rows a second. Each list of 10,000 sandboxes takes 20 requests and 10,000 rows,
// which costs $4.20 a month at the list prices of November 2026.
//
// The rejected alternative is a hub with a hibernating WebSocket. A change would cost a request to the hub beside its
// row of D1. The hub would serve all objects of a ledger, one after the other, and would need an outbox,
// acknowledgements and this list as a backstop. It would detect changes up to Config.Poll earlier.
//
// # Calls of the API
//
// Between deployments, a reconciler makes only few calls of List, and requests to Workers. The number of calls does not
// grow with environments (sites.go, Executor.ask). Package deploy paces the calls of deployments.
//
// # Keys
//
// A Worker accepts two keys while they are rotated (keyring.go), and answers name them. The client signs a refused
// request again with the next key.
package cloudflare
