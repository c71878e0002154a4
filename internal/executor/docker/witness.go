package docker

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

// An engine's id does not identify a machine: Engine 20.10 keeps it in a file that every clone of the machine
// has. The witness of a ledger is an empty volume whose name ends in the number, because an engine cannot
// change labels of volumes, and can list volumes by label. A higher one is created before the lower ones are
// removed.

var _ driver.Witnesser = (*Executor)(nil)

func witnessVolume(ledgerID string, n int64) string {
	return "sandbox-" + ledgerID + "-witness-" + strconv.FormatInt(n, 10)
}

func witnessLabels(ledgerID, instance string) map[string]string {
	return objects.LedgerLabels(ledgerID, instance, objects.RoleWitness)
}

// witnessed identifies the witnesses of a ledger on an engine.
type witnessed struct{ ledgerID, instance string }

// Witness implements driver.Witnesser.
func (e *Executor) Witness(ctx context.Context, ledgerID, instance string) (int64, error) {
	numbers, err := e.witnesses(ctx, ledgerID, instance)
	if err != nil || len(numbers) == 0 {
		return 0, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	of := witnessed{ledgerID, instance}
	e.numbers[of] = slices.Compact(slices.Sorted(slices.Values(append(numbers, e.numbers[of]...))))
	return slices.Max(numbers), nil
}

// LeaveWitness implements driver.Witnesser. It keeps the previous number, so that no caller waits for its
// removal. The next call removes it, and retries failed removals.
func (e *Executor) LeaveWitness(ctx context.Context, ledgerID, instance string, n int64) error {
	if err := objects.CheckLedger(ledgerID, instance); err != nil {
		return err
	}
	of := witnessed{ledgerID, instance}
	e.mu.Lock()
	known := slices.Clone(e.numbers[of])
	e.mu.Unlock()
	var removed []int64
	var removing sync.WaitGroup
	if len(known) > 1 {
		removing.Go(func() { removed = e.removeWitnesses(ctx, of, known[:len(known)-1]) })
	}
	err := e.ensureVolume(ctx, witnessVolume(ledgerID, n), witnessLabels(ledgerID, instance))
	removing.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(e.numbers[of]), func(n int64) bool { return slices.Contains(removed, n) })
	if err == nil {
		left = append(left, n)
	}
	e.numbers[of] = slices.Compact(slices.Sorted(slices.Values(left)))
	return err
}

// removeWitnesses removes numbers and returns those that are gone. The caller knows that they are the
// ledger's: it created them or found them by label.
func (e *Executor) removeWitnesses(ctx context.Context, of witnessed, numbers []int64) (removed []int64) {
	for _, n := range numbers {
		name := witnessVolume(of.ledgerID, n)
		err := e.tryRemoveVolume(ctx, name)
		if err != nil && !isCode(err, sandbox.NotFound) { // NotFound: another replica removed it first
			e.log.Warn("docker: an older witness of the ledger could not be removed; the next witness retries this",
				"volume", name, "error", err)
			continue
		}
		removed = append(removed, n)
	}
	return removed
}

// RemoveWitness implements driver.Witnesser.
func (e *Executor) RemoveWitness(ctx context.Context, ledgerID, instance string, n int64) error {
	numbers, err := e.witnesses(ctx, ledgerID, instance)
	if err != nil {
		return err
	}
	above := func(m int64) bool { return m > n }
	of := witnessed{ledgerID, instance}
	e.mu.Lock()
	e.numbers[of] = slices.DeleteFunc(e.numbers[of], func(m int64) bool { return !above(m) })
	e.mu.Unlock()
	for _, m := range slices.DeleteFunc(numbers, above) {
		if err := e.removeVolume(ctx, witnessVolume(ledgerID, m), witnessLabels(ledgerID, instance)); err != nil {
			return err
		}
	}
	return nil
}

// witnesses returns the numbers of a ledger that an engine has.
func (e *Executor) witnesses(ctx context.Context, ledgerID, instance string) ([]int64, error) {
	if err := objects.CheckLedger(ledgerID, instance); err != nil {
		return nil, err
	}
	found, err := e.listVolumes(ctx, "the witness of ledger", ledgerID, objects.Filter(witnessLabels(ledgerID, instance)))
	if err != nil {
		return nil, err
	}
	var numbers []int64
	for _, v := range found {
		n, err := strconv.ParseInt(v.Name[strings.LastIndexByte(v.Name, '-')+1:], 10, 64)
		if err == nil && v.Name == witnessVolume(ledgerID, n) { // foreign volumes may have copies of our labels
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}

// recognize returns an error if the engine has the right id but lacks the latest number that it must have.
// Errors: Unavailable, with ReasonOtherInstance.
func (e *Executor) recognize(ctx context.Context, instance string) error {
	e.mu.Lock()
	wanted := make(map[string]int64, 1)
	for of, numbers := range e.numbers {
		if of.instance == instance && len(numbers) > 0 {
			wanted[of.ledgerID] = slices.Max(numbers)
		}
	}
	e.mu.Unlock()
	for ledgerID, n := range wanted {
		numbers, err := e.witnesses(ctx, ledgerID, instance)
		if err != nil {
			return err
		}
		if len(numbers) == 0 || slices.Max(numbers) < n {
			return sandbox.Errorf(sandbox.Unavailable, "docker: the engine at %s has the id %s but not the volume %s, which "+
				"this "+
				"ledger created there: it is a clone or an older copy, or its volumes were removed; connect to the right engine",
				e.api.DaemonHost(), instance, witnessVolume(ledgerID, n)).WithReason(sandbox.ReasonOtherInstance)
		}
	}
	return nil
}
