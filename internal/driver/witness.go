package driver

import "context"

// Witnesser is an Executor of a backend whose instance id is no identity: a cloned machine reports the id of the
// machine that it was cloned from. So each ledger leaves a number on every instance that it uses, its witness, and
// only ever raises it. An instance that lacks the number is another machine, or an older copy of it.
type Witnesser interface {
	// Witness returns the highest number that a ledger left on an instance, 0 when there is none. From then on this
	// executor answers Unavailable, and never NotFound, while that number is missing. Errors: as Executor.
	Witness(ctx context.Context, ledgerID, instance string) (int64, error)
	// LeaveWitness leaves a number and removes lower ones. Leaving it again is success. From then on this number must
	// be there, as after Witness. Errors: as Executor; Failed.
	LeaveWitness(ctx context.Context, ledgerID, instance string, n int64) error
	// RemoveWitness removes a number and all lower ones, which need not be there any more. Errors: as Executor; Failed.
	RemoveWitness(ctx context.Context, ledgerID, instance string, n int64) error
}
