// Package fork starts a command of a sandbox below a supervisor, from a process with threads that must not wait for it.
//
//	keeper ── supervisor ── command ── all that the command starts
//
// The supervisor is a fork of the keeper that never executes another program. As a subreaper it keeps all descendants
// of the command below itself until the command ends; then it reports the wait status and exits. What still runs then
// becomes a child of process 1.
//
// The command's process takes the identity of the sandbox last, directly before execve. Until then sandbox code may not
// signal it. After that sandbox code may stop it, so no thread of the keeper waits without a limit.
package fork
