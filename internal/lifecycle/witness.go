package lifecycle

import (
	"context"
	"fmt"
	"math"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/witnesses"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// witness keeps a ledger and the instances of one backend in step. Each time this program connects, and at each resync,
// it compares the number on the instance with those that the ledger issued (witnesses.Witness).
//
//	the instance has        it is
//	a number in between     the ledger's own; a process died, or a transaction was lost, before all was noted
//	a lower one, or none    another machine with the same id, or an older copy: out of reach until adopt accepts it
//	a higher one            newer than the ledger, which was replaced by an older copy: it begins no lease until adopt
//
// If nothing of the ledger lives there, nothing can be mistaken for lost, and the instance is accepted. So is one that
// has no number but other objects of this ledger: its volumes were pruned, or an older program made the objects.
//
// The process that deletes the last environment withdraws the number (Withdraw). Every other process must forget it at
// its next look, or its executor would treat the instance as a clone.
type witness struct {
	core     *Core
	executor driver.Executor
	numbers  driver.Witnesser
	// turn holds one element while a caller compares or leaves a number.
	turn chan struct{}
	// left is the number that the instance is known to have. Only the holder of the turn touches it.
	left int64
}

// witnessOf returns nil for a backend whose instance ids are unique.
func witnessOf(c *Core, x driver.Executor) *witness {
	numbers, ok := x.(driver.Witnesser)
	if !ok {
		return nil
	}
	return &witness{core: c, executor: x, numbers: numbers, turn: make(chan struct{}, 1)}
}

func (w *witness) take(ctx context.Context) error {
	select {
	case w.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return sandbox.Errorf(sandbox.Unavailable, "%s: waiting for the witness of this ledger: %w",
			w.executor.Backend(), ctx.Err())
	}
}

func (w *witness) give() { <-w.turn }

// Instance returns the executor's instance, once the witness shows that it is the ledger's own.
func (b *Backend) Instance(ctx context.Context) (string, error) {
	id, err := b.Executor.Instance(ctx)
	if err != nil {
		return "", err
	}
	return id, b.Recognize(ctx, id)
}

// Recognize returns an error if the instance is not the ledger's own.
func (b *Backend) Recognize(ctx context.Context, instance string) error {
	if b.witness == nil {
		return nil
	}
	return b.witness.recognize(ctx, instance)
}

// recognize compares an instance with the ledger. Errors: Unavailable, with ReasonOtherInstance if it is another
// instance.
func (w *witness) recognize(ctx context.Context, instance string) error {
	if err := w.take(ctx); err != nil {
		return err
	}
	defer w.give()
	found, err := w.numbers.Witness(ctx, w.core.store.ID(), instance)
	if err != nil {
		return err
	}
	var (
		known witnesses.Witness
		uses  witnesses.InstanceUses
	)
	err = w.core.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		if known, err = witnesses.In(tx).Of(instance); err == nil {
			uses, err = witnesses.In(tx).InstanceUses(instance)
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case found > known.Issued:
		w.left = found
		return w.behind(ctx, instance, found)
	case known.Withdrawn() && !uses.Environments && !uses.Sandboxes:
		return w.remove(ctx, instance, known.Issued)
	case found > 0 && found >= known.Witnessed:
		w.left = found
		return nil
	case uses.Sandboxes:
		if err := w.recognizeByObjects(ctx, instance, found, known.Witnessed); err != nil {
			return err
		}
	case !uses.Environments:
		w.left = 0
		return nil // the first environment leaves a witness
	}
	return w.accept(ctx, instance, found)
}

// recognizeByObjects accepts an instance without a number that has other objects of this ledger.
func (w *witness) recognizeByObjects(ctx context.Context, instance string, found, want int64) error {
	if found == 0 {
		if has, err := w.hasObjects(ctx, w.core.store.ID()); err != nil || has {
			return err
		}
	}
	has := "no witness of this ledger"
	if found > 0 {
		has = fmt.Sprintf("only number %d of the witness of this ledger, which left %d", found, want)
	}
	return sandbox.Errorf(sandbox.Unavailable, "%s: the instance that answers has the id %s, and %s: it is a clone, "+
		"an older copy, or it was wiped. Nothing was changed. Connect to the right one; if this is it, "+
		"run `sandbox adopt`, after which leases whose sandboxes are missing end as vanished",
		w.executor.Backend(), instance, has).WithReason(sandbox.ReasonOtherInstance)
}

// hasObjects reports whether the instance has any object of a ledger besides the witness.
func (w *witness) hasObjects(ctx context.Context, ledgerID string) (bool, error) {
	listed, err := w.executor.List(ctx, ledgerID)
	if err != nil {
		return false, err
	}
	objects, err := w.executor.Dependents(ctx, ledgerID)
	return len(listed)+len(objects) > 0, err
}

// behind records that the instance is newer than the ledger.
func (w *witness) behind(ctx context.Context, instance string, found int64) error {
	var isNew bool
	err := w.core.store.Write(ctx, func(tx *ledger.Tx) (err error) {
		isNew, err = witnesses.In(tx).FindBehind(instance, found)
		return err
	})
	if isNew && err == nil {
		w.core.log.Warn("lifecycle: this ledger is older than what it left on the instance: it was replaced by an older "+
			"copy, and begins no lease until `sandbox adopt`", "instance", instance, "witness", found)
	}
	return err
}

// accept makes the instance the ledger's own, regardless of its number. The caller must have the turn.
func (w *witness) accept(ctx context.Context, instance string, found int64) error {
	var known witnesses.Witness
	err := w.core.store.Write(ctx, func(tx *ledger.Tx) (err error) {
		known, err = witnesses.In(tx).Accept(instance, found)
		return err
	})
	if err != nil {
		return err
	}
	if err := w.leave(ctx, instance, known.Issued); err != nil {
		return err
	}
	return w.core.store.Write(ctx, func(tx *ledger.Tx) error { return witnesses.In(tx).Witnessed(instance, known.Issued) })
}

func (w *witness) leave(ctx context.Context, instance string, n int64) error {
	if err := w.numbers.LeaveWitness(ctx, w.core.store.ID(), instance, n); err != nil {
		// The instance may be a clone, so no lease begins or ends on it until a retry succeeds.
		return sandbox.Errorf(sandbox.Unavailable, "leaving the witness of this ledger on instance %s: %w", instance, err).
			WithReason(sandbox.ReasonOf(err))
	}
	w.left = n
	return nil
}

// Attest makes sure that an instance has the last number that was issued for it, and returns that number, 0 if there is
// none. Concurrent callers share one number.
func (b *Backend) Attest(ctx context.Context, instance string) (int64, error) {
	w := b.witness
	if w == nil {
		return 0, nil
	}
	if err := w.take(ctx); err != nil {
		return 0, err
	}
	defer w.give()
	var known witnesses.Witness
	err := w.core.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		known, err = witnesses.In(tx).Of(instance)
		return err
	})
	if err != nil || known.Behind() || known.Issued <= w.left {
		return known.Issued, err
	}
	return known.Issued, w.leave(ctx, instance, known.Issued)
}

// attestation is the number that was left on the instance of a generation, 0 if there is none.
type attestation struct {
	number int64
	err    error
}

// attest leaves the number of a generation on its instance, in parallel with the step that makes the sandbox usable. It
// does nothing for other steps.
func (b *Backend) attest(ctx context.Context, t *Task) <-chan attestation {
	left := make(chan attestation, 1)
	if !t.Action.Begins() || t.Row.Pooled() {
		left <- attestation{}
		return left
	}
	go func() {
		bounded, cancel := context.WithTimeout(ctx, SpawnTimeout)
		defer cancel()
		number, err := b.Attest(bounded, t.Row.Instance)
		left <- attestation{number, err}
	}()
	return left
}

// Withdraw removes the witness from an instance whose last environment is being removed.
func (b *Backend) Withdraw(ctx context.Context, instance, environmentID string) error {
	w := b.witness
	if w == nil {
		return nil
	}
	if err := w.take(ctx); err != nil {
		return err
	}
	defer w.give()
	var last int64
	err := w.core.store.Write(ctx, func(tx *ledger.Tx) (err error) {
		last, err = witnesses.In(tx).Withdraw(instance, environmentID)
		return err
	})
	if err != nil || last == 0 {
		return err
	}
	return w.remove(ctx, instance, last)
}

// remove removes a number and all lower ones. The executor then no longer requires them. The caller must have the turn.
func (w *witness) remove(ctx context.Context, instance string, n int64) error {
	if w.left <= n {
		w.left = 0
	}
	return AsError(w.numbers.RemoveWitness(ctx, w.core.store.ID(), instance, n))
}

// WithdrawLost removes the witness of a lost ledger, once the instance has no other object of that ledger.
func (b *Backend) WithdrawLost(ctx context.Context, ledgerID, instance string) error {
	if b.witness == nil {
		return nil
	}
	has, err := b.witness.hasObjects(ctx, ledgerID)
	if err != nil || has {
		return err
	}
	return b.witness.numbers.RemoveWitness(ctx, ledgerID, instance, math.MaxInt64)
}

// Accept lets a ledger that is older than an instance begin leases again, and accepts an instance that is not
// recognized.
func (b *Backend) Accept(ctx context.Context) error {
	w := b.witness
	if w == nil {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, KillTimeout)
	defer cancel()
	instance, err := b.Executor.Instance(bounded)
	if err != nil {
		return err
	}
	if err := w.take(bounded); err != nil {
		return err
	}
	defer w.give()
	found, err := w.numbers.Witness(bounded, w.core.store.ID(), instance)
	if err != nil {
		return err
	}
	var known witnesses.Witness
	err = w.core.store.Read(bounded, func(tx *ledger.Tx) (err error) {
		known, err = witnesses.In(tx).Of(instance)
		return err
	})
	if err != nil || found >= known.Witnessed && found <= known.Issued && !known.Behind() {
		return err
	}
	return w.accept(bounded, instance, found)
}
