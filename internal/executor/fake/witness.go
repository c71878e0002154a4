package fake

import (
	"context"
	"maps"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var _ driver.Witnesser = (*Executor)(nil)

// Witness implements driver.Witnesser.
func (x *Executor) Witness(ctx context.Context, ledgerID, instance string) (int64, error) {
	if err := x.fault(ctx, OpWitness); err != nil {
		return 0, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.confirm(instance); err != nil {
		return 0, err
	}
	n := x.witnesses[ledgerID]
	x.expected[ledgerID] = max(x.expected[ledgerID], n)
	return n, nil
}

// LeaveWitness implements driver.Witnesser.
func (x *Executor) LeaveWitness(ctx context.Context, ledgerID, instance string, n int64) error {
	if err := x.fault(ctx, OpLeaveWitness); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.confirm(instance); err != nil {
		return err
	}
	x.witnesses[ledgerID] = max(x.witnesses[ledgerID], n)
	x.expected[ledgerID] = max(x.expected[ledgerID], n)
	return nil
}

// RemoveWitness implements driver.Witnesser.
func (x *Executor) RemoveWitness(ctx context.Context, ledgerID, instance string, n int64) error {
	if err := x.fault(ctx, OpLeaveWitness); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.confirm(instance); err != nil {
		return err
	}
	for _, numbers := range []map[string]int64{x.witnesses, x.expected} {
		if numbers[ledgerID] <= n {
			delete(numbers, ledgerID)
		}
	}
	return nil
}

// confirm returns an error if another instance answers. The caller must hold mu.
func (x *machine) confirm(instance string) error {
	if instance != "" && instance != x.instance {
		return sandbox.Errorf(sandbox.Unavailable, "instance %s is asked for and %s answers", instance, x.instance).
			WithReason(sandbox.ReasonOtherInstance)
	}
	return nil
}

// recognize returns an error if a clone answers. The caller must hold mu.
func (x *machine) recognize() error {
	for ledgerID, n := range x.expected {
		if x.witnesses[ledgerID] < n {
			return sandbox.Errorf(sandbox.Unavailable, "instance %s answers without number %d of ledger %s",
				x.instance, n, ledgerID).WithReason(sandbox.ReasonOtherInstance)
		}
	}
	return nil
}

// Witnesses returns the ledgers' numbers, by ledger.
func (x *Executor) Witnesses() map[string]int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.witnesses)
}

// PruneWitnesses removes the numbers of all ledgers out of band.
func (x *Executor) PruneWitnesses() {
	x.mu.Lock()
	defer x.mu.Unlock()
	clear(x.witnesses)
}

// BecomeClone makes another machine answer from now on, with the same id and without any objects. back makes the first
// one answer again.
func (x *Executor) BecomeClone() (back func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	containers, objects, witnesses := x.containers, x.objects, x.witnesses
	x.containers, x.objects = make(map[string]*container), make(map[string]driver.Dependent)
	x.witnesses = make(map[string]int64)
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.containers, x.objects, x.witnesses = containers, objects, witnesses
	}
}

// Expect makes this executor know a number that the instance lacks, as if it had found it before another program
// removed it.
func (x *Executor) Expect(ledgerID string, n int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.expected[ledgerID] = n
}

// Reopen makes this executor a new program, which has not seen the instance yet.
func (x *Executor) Reopen() {
	x.mu.Lock()
	defer x.mu.Unlock()
	clear(x.expected)
}
