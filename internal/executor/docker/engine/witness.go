package engine

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/objects"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// An engine's id does not identify a machine: Engine 20.10 keeps it in a file, which clones of the machine share. The
// witness of a ledger is an empty volume whose name ends in its number, because an engine cannot change labels of
// volumes, but can list volumes by label. The next volume is created before the previous ones are removed.

// Witnesses are the witnesses of ledgers on an engine. They implement driver.Witnesser.
type Witnesses struct {
	engine *Engine

	mu sync.Mutex // guards what follows
	// numbers are the known witnesses on engines, in ascending order. The last one must exist.
	numbers map[witnessed][]int64
}

var _ driver.Witnesser = (*Witnesses)(nil)

func witnessVolume(ledgerID string, n int64) string {
	return "sandbox-" + ledgerID + "-witness-" + strconv.FormatInt(n, 10)
}

func witnessLabels(ledgerID, instance string) map[string]string {
	return objects.LedgerLabels(ledgerID, instance, objects.RoleWitness)
}

// witnessed identifies the witnesses of a ledger on an engine.
type witnessed struct{ ledgerID, instance string }

// Witness implements driver.Witnesser.
func (w *Witnesses) Witness(ctx context.Context, ledgerID, instance string) (int64, error) {
	numbers, err := w.witnesses(ctx, ledgerID, instance)
	if err != nil || len(numbers) == 0 {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	of := witnessed{ledgerID, instance}
	w.numbers[of] = slices.Compact(slices.Sorted(slices.Values(append(numbers, w.numbers[of]...))))
	return slices.Max(numbers), nil
}

// LeaveWitness implements driver.Witnesser. It keeps the previous number, so that no caller waits for its removal. The
// next call removes it and retries failed removals.
func (w *Witnesses) LeaveWitness(ctx context.Context, ledgerID, instance string, n int64) error {
	if err := objects.CheckLedger(ledgerID, instance); err != nil {
		return err
	}
	of := witnessed{ledgerID, instance}
	w.mu.Lock()
	known := slices.Clone(w.numbers[of])
	w.mu.Unlock()
	var removed []int64
	var removing sync.WaitGroup
	if len(known) > 1 {
		removing.Go(func() { removed = w.removeWitnesses(ctx, of, known[:len(known)-1]) })
	}
	err := w.engine.EnsureVolume(ctx, witnessVolume(ledgerID, n), witnessLabels(ledgerID, instance))
	removing.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(w.numbers[of]), func(n int64) bool { return slices.Contains(removed, n) })
	if err == nil {
		left = append(left, n)
	}
	w.numbers[of] = slices.Compact(slices.Sorted(slices.Values(left)))
	return err
}

// removeWitnesses removes numbers and returns those that are gone. The caller must know that they are the ledger's,
// because it created them or found them by label.
func (w *Witnesses) removeWitnesses(ctx context.Context, of witnessed, numbers []int64) (removed []int64) {
	for _, n := range numbers {
		name := witnessVolume(of.ledgerID, n)
		err := w.engine.TryRemoveVolume(ctx, name)
		if err != nil && sandbox.CodeOf(err) != sandbox.NotFound { // NotFound: another replica removed it first
			w.engine.Log.Warn("docker: an older witness of the ledger could not be removed; the next witness retries this",
				"volume", name, "error", err)
			continue
		}
		removed = append(removed, n)
	}
	return removed
}

// RemoveWitness implements driver.Witnesser.
func (w *Witnesses) RemoveWitness(ctx context.Context, ledgerID, instance string, n int64) error {
	numbers, err := w.witnesses(ctx, ledgerID, instance)
	if err != nil {
		return err
	}
	above := func(m int64) bool { return m > n }
	of := witnessed{ledgerID, instance}
	w.mu.Lock()
	w.numbers[of] = slices.DeleteFunc(w.numbers[of], func(m int64) bool { return !above(m) })
	w.mu.Unlock()
	for _, m := range slices.DeleteFunc(numbers, above) {
		if err := w.engine.RemoveVolume(ctx, witnessVolume(ledgerID, m), witnessLabels(ledgerID, instance)); err != nil {
			return err
		}
	}
	return nil
}

// witnesses returns the numbers of a ledger that an engine has.
func (w *Witnesses) witnesses(ctx context.Context, ledgerID, instance string) ([]int64, error) {
	if err := objects.CheckLedger(ledgerID, instance); err != nil {
		return nil, err
	}
	found, err := w.engine.ListVolumes(ctx, "the witness of ledger", ledgerID,
		objects.Filter(witnessLabels(ledgerID, instance)))
	if err != nil {
		return nil, err
	}
	var numbers []int64
	for _, v := range found {
		n, err := strconv.ParseInt(v.Name[strings.LastIndexByte(v.Name, '-')+1:], 10, 64)
		if err == nil && v.Name == witnessVolume(ledgerID, n) { // another program may have copied our labels to its volumes
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}

// recognize returns an error if the engine has the right id but lacks the latest witness that it must have. Errors:
// Unavailable with ReasonOtherInstance.
func (w *Witnesses) recognize(ctx context.Context, instance string) error {
	w.mu.Lock()
	wanted := make(map[string]int64, 1)
	for of, numbers := range w.numbers {
		if of.instance == instance && len(numbers) > 0 {
			wanted[of.ledgerID] = slices.Max(numbers)
		}
	}
	w.mu.Unlock()
	for ledgerID, n := range wanted {
		numbers, err := w.witnesses(ctx, ledgerID, instance)
		if err != nil {
			return err
		}
		if len(numbers) == 0 || slices.Max(numbers) < n {
			return sandbox.Errorf(sandbox.Unavailable, "docker: the engine at %s has the id %s but not the volume %s, which "+
				"this "+
				"ledger created there: it is a clone or an older copy, or its volumes were removed; connect to the right engine",
				w.engine.API.DaemonHost(), instance, witnessVolume(ledgerID, n)).WithReason(sandbox.ReasonOtherInstance)
		}
	}
	return nil
}
