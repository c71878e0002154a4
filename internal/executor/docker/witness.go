package docker

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// An engine's id is no identity: Engine 20.10 keeps it in a file that every clone of a machine has. The witness of a
// ledger is an empty volume whose name ends in the number: an engine changes no label of a volume, and lists volumes by
// label. A higher one is made before the lower ones are removed.

var _ driver.Witnesser = (*Executor)(nil)

func witnessVolume(ledgerID string, n int64) string {
	return "sandbox-" + ledgerID + "-witness-" + strconv.FormatInt(n, 10)
}

func witnessLabels(ledgerID, instance string) map[string]string {
	return map[string]string{labelProvider: providerName, labelLedger: ledgerID, labelInstance: instance, labelRole: string(roleWitness)}
}

// witnessed names what a ledger left on an engine.
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

// LeaveWitness implements driver.Witnesser. The last number stays beside the new one, so that no caller waits for its
// removal, which is the next call's; what cannot be removed is tried again then.
func (e *Executor) LeaveWitness(ctx context.Context, ledgerID, instance string, n int64) error {
	if err := checkWitness(ledgerID, instance); err != nil {
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

// removeWitnesses removes numbers, and returns those that are gone. They are known to be the ledger's: it left them, or
// found them by their labels.
func (e *Executor) removeWitnesses(ctx context.Context, of witnessed, numbers []int64) (removed []int64) {
	for _, n := range numbers {
		name := witnessVolume(of.ledgerID, n)
		err := e.do(ctx, change("remove volume", name, sandbox.ReasonRemovalFailed), func(ctx context.Context) error {
			return e.api.VolumeRemove(ctx, name, false)
		})
		if err != nil && !isCode(err, sandbox.NotFound) { // another replica was faster
			e.log.Warn("an older witness of the ledger cannot be removed now; it is tried again with the next one", "volume", name, "error", err)
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

func checkWitness(ledgerID, instance string) error {
	return checkRef(driver.EnvironmentRef{LedgerID: ledgerID, EnvironmentID: "any", Instance: instance})
}

// witnesses returns the numbers of a ledger that an engine has.
func (e *Executor) witnesses(ctx context.Context, ledgerID, instance string) ([]int64, error) {
	if err := checkWitness(ledgerID, instance); err != nil {
		return nil, err
	}
	found, err := fetch(ctx, e, read("list the witness of ledger", ledgerID), func(ctx context.Context) (dockerapi.VolumeListResponse, error) {
		return e.api.VolumeList(ctx, dockerapi.VolumeListOptions{Filters: labelFilter(witnessLabels(ledgerID, instance))})
	})
	if err != nil {
		return nil, err
	}
	var numbers []int64
	for _, v := range found.Volumes {
		n, err := strconv.ParseInt(v.Name[strings.LastIndexByte(v.Name, '-')+1:], 10, 64)
		if err == nil && v.Name == witnessVolume(ledgerID, n) { // others may have copied our labels
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}

// recognize returns an error where an engine answers that has the id but not the last number that it is known to have.
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
			return sandbox.Errorf(sandbox.Unavailable, "docker: the engine at %s has the id %s but no volume %s, which this ledger left on that engine: "+
				"it is a clone, an older copy, or its volumes were removed; connect to the right one",
				e.api.DaemonHost(), instance, witnessVolume(ledgerID, n)).WithReason(sandbox.ReasonOtherInstance)
		}
	}
	return nil
}
