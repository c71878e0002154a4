// Package commands runs commands in sandboxes. Each is brought to its end whichever process dies: the ledger knows that
// it runs, its sandbox keeps what it wrote first, and another process follows it.
//
// # Life of a command
//
// A command is a row of execs, made in the transaction that begins its use of the sandbox and settled in
// the one that ends it. Its holder, the process that runs or follows it, has it until held_until, which the
// heartbeat extends; only the holder settles it, or the kill that makes its sandbox gone.
//
//	            result            the holder has the backend's word how it ended
//	running ──────────────> finished
//	   │ └────────────────> failed      it was not run, or the sandbox knows nothing of it any more
//	   └──────────────────> cancelled   cancel_at is set, its caller left, or its lease ended by the rules
//
// The commands of an environment's post_start are part of the step that spawns or assigns: its last
// part (poststart.go). Their ids come of the sandbox's, so a step that is taken again finds what was
// begun: what has ended stays as it ended, what runs is followed by the holder of the claim alone,
// and what no sandbox ever heard of is started. Once the first has begun, files and /data are not
// given again.
//
// When its holder dies, the command goes on: the sandbox keeps its first output and its end (Runner.Follow).
// A process that finds held_until passed takes the command over, and follows it from its beginning. Until then
// its use keeps the lease awake (useTTL). An object with its output is doomed before it is stored,
// and settling publishes it.
package commands
