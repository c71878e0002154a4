// Package processes runs processes in sandboxes, beside commands. An environment declares some, and callers start
// others. They restart after their sandbox was stopped.
//
// # Life of a process
//
// A process is a row of processes, which says what is wanted: its state is pending or running, or it is over. It holds
// no sandbox, so it does not count as activity. A reconciler that finds a pending one due, in a sandbox that is awake,
// makes it running, and follows it to its end; it has the process until due_at, which the heartbeat extends, and
// another one that finds that passed takes it over.
//
//	         due             its sandbox was stopped: declared, or restart always
//	pending ────> running ──────────────────────────────────────────> pending, under the same run
//	                │ └──> ended by itself: pending after a pause (always), exited, failed
//	                └────> killed (kill_at is set), stopped (with its sandbox)
//
// A run has an id on the backend, which starts it at most once per start of the sandbox: a repeated or late start finds
// its own run. So a run that ended because the sandbox stopped keeps its id for the next start, and only one that ended
// by itself gets another.
package processes
