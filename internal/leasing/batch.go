package leasing

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/environments"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// One transaction accepts a batch, and its sandboxes are created concurrently. The new rows of an all-or-none batch
// have its id. The transaction that records that one lease cannot begin ends the others. So a batch needs no owner: if
// the process dies, another one works on the rows as on all others.

// endBatchLimit is how long a failed batch waits until its sandboxes are gone. After that the loop removes them.
const endBatchLimit = time.Minute

// leaseBatch is a batch that is being acquired.
type leaseBatch struct {
	asked []sandbox.Acquire
	// id is in the rows of an all-or-none batch; "" for other batches.
	id string
	// begun has the accepted beginning of each item, failed the reason why it was refused.
	begun  []beginning
	failed []error
	// release ends a failed batch once. unreleased is set if the ledger could not record that.
	release    sync.Once
	unreleased error
}

// AcquireBatch implements service.Leases.
func (v *Service) AcquireBatch(ctx context.Context, r sandbox.AcquireBatch) ([]sandbox.AcquireResult, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	b := &leaseBatch{asked: r.Each()}
	if r.AllOrNone {
		b.id = v.ids(sandbox.LedgerIDLength)
	}
	if err := v.acceptBatch(ctx, b, r.NoWait); err != nil {
		return nil, err
	}
	if i := b.firstFailure(); i >= 0 && r.AllOrNone {
		return nil, r.ItemError(i, b.failed[i])
	}
	if r.NoWait {
		return v.driveBatchInBackground(ctx, b)
	}
	if !r.AllOrNone {
		return v.driveBatch(ctx, b), nil
	}
	results, err := v.driveAllOrNone(ctx, b)
	i := firstCause(results)
	switch {
	case err != nil:
		return nil, err
	case i < 0:
		return results, nil
	case v.Life().Err() != nil || b.unreleased != nil:
		cause := cmp.Or(b.unreleased, results[i].Err)
		return nil, sandbox.Errorf(sandbox.Unavailable,
			"the batch continues, because its end was not recorded: send it again: %w", cause)
	}
	return nil, r.ItemError(i, results[i].Err)
}

// firstFailure returns the first item that was not accepted, -1 if all were.
func (b *leaseBatch) firstFailure() int {
	return slices.IndexFunc(b.failed, func(err error) bool { return err != nil })
}

// firstCause returns the first item with a failure of its own. If there is none, it returns the first failed item, or
// -1.
func firstCause(results []sandbox.AcquireResult) int {
	byItself := slices.IndexFunc(results,
		func(r sandbox.AcquireResult) bool { return r.Err != nil && !errors.Is(r.Err, errTakenBack) })
	if byItself >= 0 {
		return byItself
	}
	return slices.IndexFunc(results, func(r sandbox.AcquireResult) bool { return r.Err != nil })
}

// acceptBatch accepts the items in one commit, and records those that it refuses as failed. In an all-or-none batch,
// the first refusal rolls the commit back. It waits for an environment that is being created, or whose instance is not
// connected yet.
func (v *Service) acceptBatch(ctx context.Context, b *leaseBatch, noWait bool) error {
	barred := make(map[string]error) // environments that grant no leases now, and why
	asked := make(map[string]bool)   // environments that it has waited for
	for {
		stopped := ""
		err := v.store.Write(ctx, func(tx *ledger.Tx) (err error) {
			stopped, err = v.findOrBeginEach(tx, b, barred)
			return err
		})
		if stopped != "" && isMomentary(err) {
			barred[stopped] = v.awaitLeasable(ctx, stopped, err, asked[stopped], noWait)
			asked[stopped] = true
			continue
		}
		v.noteBudgets(ctx, b)
		if err == nil {
			for i := range b.begun {
				v.KeepClaim(b.begun[i].first)
			}
		}
		if b.id != "" && b.firstFailure() >= 0 {
			return nil // the batch fails with the item's error
		}
		return err
	}
}

// isMomentary reports whether an environment may grant leases soon.
func isMomentary(err error) bool {
	var away *lifecycle.AwayError
	return errors.As(err, &away) || errors.Is(err, environments.ErrUnmade)
}

// findOrBeginEach calls findOrBegin for each item. stopped is the environment to wait for; its error rolls the
// transaction back.
func (v *Service) findOrBeginEach(tx *ledger.Tx, b *leaseBatch, barred map[string]error) (stopped string, err error) {
	b.begun, b.failed = make([]beginning, len(b.asked)), make([]error, len(b.asked))
	for i, a := range b.asked {
		refused := barred[a.EnvironmentID]
		begin := func(tx *ledger.Tx) (err error) {
			b.begun[i], err = v.findOrBegin(tx, a, b.id, true)
			return err
		}
		switch {
		case refused != nil:
		case b.id != "": // the first refusal rolls everything back
			refused = begin(tx)
		default:
			refused, err = tx.Part(begin)
		}
		switch {
		case err != nil:
			return "", err
		case refused == nil:
			continue
		case barred[a.EnvironmentID] == nil && isMomentary(refused):
			return a.EnvironmentID, refused
		}
		b.begun[i], b.failed[i] = beginning{}, refused
		if b.id != "" {
			return "", refused
		}
	}
	return "", nil
}

// awaitLeasable waits for an environment that grants no leases now, as Acquire does. It returns why the environment
// still grants none, nil if another try may succeed.
func (v *Service) awaitLeasable(ctx context.Context, environmentID string, cause error, again, noWait bool) error {
	var away *lifecycle.AwayError
	if errors.As(cause, &away) {
		if again {
			return sandbox.Errorf(sandbox.Unavailable, "%w: the connection broke; try again", cause)
		}
		return v.MustReach(ctx, away.Backend, away.Instance)
	}
	if noWait {
		return cause
	}
	waited, err := v.environments.Await(ctx, environmentID)
	if err == nil && !waited && again {
		err = cause // no other request is creating it
	}
	return err
}

// noteBudgets records the budget events that refused items rolled back.
func (v *Service) noteBudgets(ctx context.Context, b *leaseBatch) {
	noted := make(map[string]bool)
	for i, a := range b.asked {
		if sandbox.CodeOf(b.failed[i]) != sandbox.BudgetExceeded || noted[a.EnvironmentID] {
			continue
		}
		noted[a.EnvironmentID] = true
		if err := v.billing.CheckBudget(ctx, a.EnvironmentID); err != nil {
			v.log.WarnContext(ctx, "leasing: looking at a budget", "environment", a.EnvironmentID, "error", err)
		}
	}
}

// driveBatch waits until the sandboxes of all accepted items can be used. It works on them concurrently.
func (v *Service) driveBatch(ctx context.Context, b *leaseBatch) []sandbox.AcquireResult {
	results := make([]sandbox.AcquireResult, len(b.asked))
	var working sync.WaitGroup
	for i, a := range b.asked {
		if results[i].Err = b.failed[i]; results[i].Err != nil {
			continue
		}
		working.Go(func() {
			if b.id == "" {
				results[i].Acquired, results[i].Err = v.awaitReady(ctx, a, b.begun[i])
				return
			}
			results[i].Acquired, results[i].Err = v.awaitMember(ctx, a, b.begun[i])
			if err := results[i].Err; err != nil {
				b.release.Do(func() { b.unreleased = v.releaseBatch(ctx, b, err) })
			}
		})
	}
	working.Wait()
	return results
}

// awaitMember is awaitReady for a lease of an all-or-none batch. The transaction that recorded the loss of a pool's
// sandbox has replaced the sandbox. A lease that another batch rolled back is not acquired again, because this batch
// may have ended. A lease that was to end, as one of a dead agent, has begun all the same: it ends no other.
func (v *Service) awaitMember(ctx context.Context, a sandbox.Acquire, b beginning) (sandbox.Acquired, error) {
	got, err := v.awaitReadyOnce(ctx, b)
	switch {
	case err == nil:
		return got, nil
	case v.endedByRules(ctx, b.sandboxID):
		return v.awaitReadyOnce(ctx, beginning{sandboxID: b.sandboxID, isNew: b.isNew})
	case !errors.Is(err, errLostFromPool):
		return got, err
	}
	var next *ledger.Sandbox
	readErr := v.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		next, _, err = lifecycle.CurrentOf(tx, sandbox.LeaseID(a.AgentDID, a.EnvironmentID))
		return err
	})
	if readErr != nil {
		return sandbox.Acquired{}, readErr
	}
	if next.ID == b.sandboxID {
		return sandbox.Acquired{}, err
	}
	return v.awaitReadyOnce(ctx, beginning{sandboxID: next.ID, isNew: b.isNew})
}

// endedByRules reports whether a lease has ended by its rules, and not with a batch.
func (v *Service) endedByRules(ctx context.Context, sandboxID string) (ended bool) {
	err := v.store.Read(context.WithoutCancel(ctx), func(tx *ledger.Tx) error {
		s, err := lifecycle.MustSandbox(tx, sandboxID)
		ended = err == nil && s.Desired == ledger.Gone && s.Ending.By.EndedByRules() && !takenBack(s)
		return err
	})
	if err != nil {
		v.log.WarnContext(ctx, "leasing: looking at a lease of a batch", "sandbox", sandboxID, "error", err)
	}
	return ended
}

// driveAllOrNone finishes an all-or-none batch, even if its caller leaves.
func (v *Service) driveAllOrNone(ctx context.Context, b *leaseBatch) ([]sandbox.AcquireResult, error) {
	done := make(chan []sandbox.AcquireResult, 1)
	detached := context.WithoutCancel(ctx)
	began := v.Background(func() {
		results := v.driveBatch(detached, b)
		if firstCause(results) >= 0 {
			v.awaitReleased(detached, b)
		}
		done <- results
	})
	if !began {
		b.releaseClaims(v)
		return nil, lifecycle.ErrClosing
	}
	select {
	case results := <-done:
		return results, nil
	case <-ctx.Done():
		return nil, sandbox.Errorf(sandbox.Timeout, "the batch continues: %w", ctx.Err())
	}
}

// driveBatchInBackground finishes a batch without a waiting caller, and returns the leases in their accepted state. If
// this process dies, the loop continues.
func (v *Service) driveBatchInBackground(ctx context.Context, b *leaseBatch) ([]sandbox.AcquireResult, error) {
	began := v.Background(func() {
		results := v.driveBatch(v.Life(), b)
		for i := range results {
			if err := results[i].Err; err != nil && b.failed[i] == nil {
				v.log.Warn("leasing: a lease of a batch that is not waited for is not ready",
					lifecycle.AboutLease(sandbox.LeaseID(b.asked[i].AgentDID, b.asked[i].EnvironmentID), b.begun[i].sandboxID),
					"error", err)
			}
		}
	})
	if !began {
		b.releaseClaims(v)
		return nil, lifecycle.ErrClosing
	}
	results := make([]sandbox.AcquireResult, len(b.asked))
	err := v.store.Read(ctx, func(tx *ledger.Tx) error {
		for i := range results {
			if results[i] = (sandbox.AcquireResult{Err: b.failed[i]}); results[i].Err != nil {
				continue
			}
			s, err := lifecycle.MustSandbox(tx, b.begun[i].sandboxID)
			if err != nil {
				return err
			}
			results[i].IsNew = b.begun[i].isNew
			if results[i].Lease, err = v.view(tx, s); err != nil {
				return err
			}
		}
		return nil
	})
	return results, err
}

// releaseClaims releases the claims of a batch that this process does not work on.
func (b *leaseBatch) releaseClaims(e *Service) {
	for i := range b.begun {
		if t := b.begun[i].first; t != nil {
			e.ReleaseClaim(t)
		}
	}
}

// releaseBatch ends the leases that an all-or-none batch has begun. Usually the failed step has ended them already. A
// service that closes leaves the batch to other processes.
func (v *Service) releaseBatch(ctx context.Context, b *leaseBatch, cause error) error {
	if v.Life().Err() != nil {
		return nil //nolint:nilerr // see above
	}
	return v.store.Write(context.WithoutCancel(ctx),
		func(tx *ledger.Tx) error { return v.endBatch(tx, b.id, cause.Error()) })
}

// awaitReleased waits until the sandboxes of a batch are gone.
func (v *Service) awaitReleased(ctx context.Context, b *leaseBatch) {
	ctx, cancel := context.WithTimeout(ctx, endBatchLimit)
	defer cancel()
	var waiting sync.WaitGroup
	for _, one := range b.begun {
		if !one.isNew || v.Life().Err() != nil {
			continue
		}
		waiting.Go(func() {
			if err := v.AwaitGone(ctx, one.sandboxID); err != nil {
				v.log.WarnContext(ctx,
					"leasing: a sandbox of a failed batch could not be confirmed as removed; this will be tried again",
					"sandbox", one.sandboxID, "error", err)
			}
		})
	}
	waiting.Wait()
}
