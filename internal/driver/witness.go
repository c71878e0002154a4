package driver

import "context"

// Witnesser is an Executor of a backend whose instance id does not identify a machine: a cloned machine
// reports the original's id. So each ledger leaves a number, its witness, on every instance that it uses, and
// only raises it. An instance without the number is another machine, or an older copy.
type Witnesser interface {
	// Witness returns the highest number that a ledger left on an instance, 0 if there is none. From then on,
	// while that number is missing, this executor returns Unavailable and never NotFound. Errors: as
	// Executor.
	Witness(ctx context.Context, ledgerID, instance string) (int64, error)
	// LeaveWitness stores a number and removes lower ones. It is idempotent. From then on the number is
	// required, as after Witness. Errors: as Executor; Failed.
	LeaveWitness(ctx context.Context, ledgerID, instance string, n int64) error
	// RemoveWitness removes a number and all lower ones. They may already be absent. Errors: as Executor;
	// Failed.
	RemoveWitness(ctx context.Context, ledgerID, instance string, n int64) error
}
