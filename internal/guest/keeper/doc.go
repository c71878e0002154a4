// Package keeper is process 1 of a sandbox: it starts and ends commands, keeps their output, holds the deadline, bounds the
// disk and restarts the broker, which speaks to the reconciler.
//
//	keeper (process 1, user 65533, may signal all)
//	├── broker (user 65533, changes its file-system identity)
//	├── supervisor (user 65533) ── command (user of the sandbox) ── …
//	└── what commands left behind
//
// Code of the sandbox runs as another user: it cannot signal, trace or slow down process 1, its broker or supervisors.
// The keeper resolves no path and unpacks nothing; that is the broker's work, which may fail without harm.
package keeper
