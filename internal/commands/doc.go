// Package commands runs commands in sandboxes. A command runs to its end even if a process dies: the ledger records it,
// its sandbox keeps its first output, and another process follows it.
//
// # Life of a command
//
// A command is a row of execs. The transaction that begins its use of the sandbox creates it, and the one that ends the
// use settles it. The holder is the process that runs or follows the command. It holds the command until held_until,
// which the heartbeat extends. Only the holder settles it, or the kill that makes its sandbox gone.
//
//	            result            the backend reported to the holder how it ended
//	running ──────────────> finished
//	   │ └────────────────> failed      it did not run, or the sandbox no longer knows it
//	   └──────────────────> cancelled   cancel_at is set, its caller left, or its lease ended by the rules
//
// The commands of an environment's post_start are the last part of the step that spawns or assigns (poststart.go).
// Their ids are derived from the sandbox's id, so a repeated step finds the commands that an earlier try began: an
// ended command keeps its result, the holder of the claim follows a running one, and one that the sandbox does not know
// is started. Once the first has begun, the step writes no files and no /data again.
//
// When its holder dies, the command continues: the sandbox keeps its first output and its result (Runner.Follow). A
// process that finds held_until passed takes the command over and follows it from its beginning. Until then its use
// keeps the lease awake (useTTL). An object with its output is marked for deletion before it is stored, and settling
// publishes it.
package commands
