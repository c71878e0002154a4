// Package fork starts a command of a sandbox below a supervisor. Its caller is a process with many threads that must
// not wait for the command.
//
//	keeper ── starter ── supervisor ── command ── all that the command starts
//
// The starter is a fork of the keeper that never executes another program. It has one thread and little
// memory, so its forks cost a fraction of the keeper's. It forks a supervisor for each command that the
// keeper sends.
//
// The supervisor is a fork of the starter. As a subreaper it keeps all descendants of the command below
// itself until the command ends. Then it reports the wait status and exits, and the remaining processes
// become children of process 1.
//
// The command's process shares the supervisor's memory until execve, where that is safe, because copying takes longer
// than all else. The supervisor then waits.
//
// The command's process takes the sandbox's identity as the last step before execve. Before that, sandbox
// code may not signal it. After that, sandbox code may stop it, so no thread of the keeper waits without a
// limit.
package fork
