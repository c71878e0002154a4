// Package processes runs processes in sandboxes, beside commands. An environment declares some, and callers start
// others. They restart after a stop of their sandbox.
//
// # Life of a process
//
// A process is a row of processes with the wanted state: pending or running, or ended. It does not hold its sandbox, so
// it does not count as activity. A reconciler looks for pending processes that are due in awake sandboxes. It marks one
// as running, and follows it to its end. It holds the process until due_at, which the heartbeat extends. After due_at,
// another reconciler takes over.
//
//	         due             its sandbox was stopped: declared, or restart always
//	pending ────> running ──────────────────────────────────────────> pending, under the same run
//	                │ └──> ended by itself: pending after a pause (always), exited, failed
//	                └────> killed (kill_at is set), stopped (with its sandbox)
//
// The backend starts each run id at most once per start of the sandbox: a repeated or late start finds its own run. So
// a run that ended because the sandbox stopped keeps its id for the next start. A run that ended by itself gets a new
// one.
//
// A sandbox that has run many processes forgets how the oldest ended, long before it forgets their ids. If no
// reconciler followed such a run, the sandbox refuses the next start under its id. Then the process has ended, and its
// result is unknown.
package processes
