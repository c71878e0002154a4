// Package keeper is process 1 of a sandbox: it starts and ends commands, keeps their output, enforces the
// deadline and the disk limit, and restarts the broker, which talks to the reconciler.
//
//	keeper (process 1, user 65533, may signal all)
//	├── broker (user 65533, changes its file-system identity)
//	├── starter (user 65533) ── supervisor (user 65533) ── command (user of the sandbox) ── …
//	└── processes that commands left behind
//
// Sandbox code runs as another user: it cannot signal, trace or slow down process 1, its broker, starter or
// supervisors. The keeper resolves no paths and unpacks nothing. The broker does, and may crash without harm.
package keeper
