package billing

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// For backends with their own meter, billing compares whole UTC days that have ended.
const (
	// meterDays is the number of days to compare. Late figures arrive within that time.
	meterDays = 7
	// meterLag is the time after a day's end at which its figures count as complete.
	meterLag = ledger.Span(6 * time.Hour / time.Microsecond)
	// meterTimeout limits the calls for all environments.
	meterTimeout = 3 * time.Minute
)

// Resolutions of findings about usage, and the advice while they are open.
const (
	resolvedMetered = "the backend's figures now agree with the ledger's"
	resolvedPast    = "the day is more than a week ago and no longer compared"
	adviceMetered   = "costs stay as the ledger computed them: compare them with the backend's invoice"
)

// meter is a figure that both sides count, and its tolerance: a share of the larger figure, and an absolute
// amount that covers starts and stops.
type meter struct {
	name, unit string
	// perUnit divides a figure, in CPU seconds or MB-seconds, into the displayed unit.
	perUnit      float64
	share, floor float64
}

// A backend's CPU figure includes the virtual machine around the container. The ledger's figure does not.
var (
	meterCPU    = meter{"CPU", "CPU hours", 3600, 0.25, 300}
	meterMemory = meter{"memory", "GiB hours", 3600 * 1024, 0.10, 60 * 1024}
	meterDisk   = meter{"disk", "GB hours", 3600 * 1000, 0.10, 60 * 10_000}
)

func (m meter) show(v float64) string { return fmt.Sprintf("%.2f %s", v/m.perUnit, m.unit) }

// differ reports whether two figures differ by more than the tolerance.
func (m meter) differ(a, b float64) bool {
	return math.Abs(a-b) > max(m.floor, m.share*max(a, b))
}

// figures is the usage of one day.
type figures struct{ cpu, memory, disk float64 }

func figuresOfLedger(u ledger.Usage) figures {
	return figures{u.CPU.Duration().D().Seconds(), float64(u.Memory) / 1000, float64(u.Disk) / 1000}
}

func figuresOfBackend(m driver.Metered) figures {
	return figures{m.CPU.Seconds(), m.MemoryMBSeconds, m.DiskMBSeconds}
}

// usageField names a figure of an environment's usage on a day, in a finding. This is the prefix of such
// names.
func usageField(environmentID string) string { return "usage of environment " + environmentID + " on " }

// CompareUsage compares the ledger's usage of the last days on an instance with the backend's own meter. A
// difference beyond the tolerance becomes a finding. Costs do not change. Any number of processes may call it
// at any time. Errors: Forbidden if the credentials may not read the meter.
func (b *Service) CompareUsage(ctx context.Context, m driver.Meter, backend sandbox.Backend, instance string) error {
	var (
		days stretch
		envs []ledger.Environment
		used map[string]map[string]ledger.Usage
	)
	err := b.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		days.to = midnight(tx.Now - ledger.Time(meterLag))
		days.from = days.to.Add(-meterDays * oneDay)
		if envs, err = tx.Environments(); err != nil {
			return err
		}
		used, err = usageByDay(tx, instance, days)
		return err
	})
	if err != nil {
		return err
	}
	envs = slices.DeleteFunc(envs, func(env ledger.Environment) bool {
		serves := env.Status == sandbox.EnvironmentOpen || env.Status == sandbox.EnvironmentClosed
		return !serves || env.Instance != instance || env.Backend != backend || firstMetered(&env, days) >= days.to
	})
	if len(envs) == 0 {
		return nil
	}
	refs := make([]driver.EnvironmentRef, len(envs))
	for i := range envs {
		refs[i] = b.refOf(&envs[i])
	}
	bounded, cancel := context.WithTimeout(ctx, meterTimeout)
	defer cancel()
	counted, err := m.Metered(bounded, refs, days.from.Time(), days.to.Time())
	if err != nil {
		return err
	}
	var failed []error
	for i := range envs {
		env := &envs[i]
		if err := b.reconcileEnvironment(ctx, env, days, used[env.ID], counted); err != nil {
			failed = append(failed, fmt.Errorf("comparing the usage of environment %s: %w", env.ID, err))
		}
	}
	return errors.Join(failed...)
}

func (b *Service) refOf(env *ledger.Environment) driver.EnvironmentRef {
	return driver.EnvironmentRef{LedgerID: b.store.ID(), EnvironmentID: env.ID, Instance: env.Instance}
}

// firstMetered is the first day on which an environment is compared. It skips the day of its creation, because an
// earlier environment may have had the same name.
func firstMetered(env *ledger.Environment, days stretch) ledger.Time {
	return max(days.from, midnight(env.CreatedAt).Add(oneDay))
}

// usageByDay returns the usage on an instance by environment and whole day.
func usageByDay(tx *ledger.Tx, instance string, in stretch) (map[string]map[string]ledger.Usage, error) {
	used := make(map[string]map[string]ledger.Usage)
	add := func(environment, day string, u ledger.Usage) {
		if used[environment] == nil {
			used[environment] = make(map[string]ledger.Usage)
		}
		used[environment][day] = used[environment][day].Plus(u)
	}
	err := tx.Accounting().CostDays(dayOf(in.from), dayOf(in.to), true, func(u ledger.LeaseUsage) {
		if u.Instance == instance {
			add(u.EnvironmentID, u.Day, u.Usage)
		}
	})
	if err != nil {
		return nil, err
	}
	periods, err := tx.Accounting().UnrolledPeriods()
	for i := range periods {
		if p := &periods[i]; p.Instance == instance {
			for x := range partsIn(p, in, tx.Now) {
				add(p.EnvironmentID, dayOf(x.from), x.usage(p, sandbox.PriceBook{}))
			}
		}
	}
	return used, err
}

// reconcileEnvironment compares one environment with the backend's figures.
func (b *Service) reconcileEnvironment(ctx context.Context, env *ledger.Environment, days stretch,
	used map[string]ledger.Usage, counted map[driver.EnvironmentRef][]driver.Metered) error {
	list, there := counted[b.refOf(env)]
	if !there {
		return sandbox.Errorf(sandbox.NotFound, "the backend has nothing of this environment")
	}
	days.from = firstMetered(env, days)
	billed := make(map[string]figures)
	for _, d := range list {
		billed[d.Day.UTC().Format(time.DateOnly)] = figuresOfBackend(d)
	}
	var found []ledger.DriftFinding
	for day := days.from; day < days.to; day = day.Add(oneDay) {
		name := dayOf(day)
		found = append(found, compareUsage(env, name, figuresOfLedger(used[name]), billed[name])...)
	}
	return b.recordUsage(ctx, env, dayOf(days.from), found)
}

// compareUsage returns the differences of one day. It is a pure function.
func compareUsage(env *ledger.Environment, day string, ours, theirs figures) (found []ledger.DriftFinding) {
	for _, c := range []struct {
		meter
		ours, theirs float64
	}{{meterCPU, ours.cpu, theirs.cpu}, {meterMemory, ours.memory, theirs.memory}, {meterDisk, ours.disk, theirs.disk}} {
		if c.differ(c.ours, c.theirs) {
			found = append(found, ledger.DriftFinding{
				Kind:          sandbox.DriftUsage,
				EnvironmentID: env.ID,
				Instance:      env.Instance,
				Field:         usageField(env.ID) + day + ": " + c.name,
				Expected:      c.show(c.ours),
				Observed:      c.show(c.theirs),
				Resolution:    adviceMetered,
			})
		}
	}
	return found
}

// recordUsage records the findings of days from first on, and resolves findings that now agree or are too
// old.
func (b *Service) recordUsage(ctx context.Context, env *ledger.Environment, first string,
	found []ledger.DriftFinding) error {
	return b.store.Write(ctx, func(tx *ledger.Tx) error {
		seen := make(map[string]bool)
		for _, f := range found {
			seen[f.Field] = true
			_, isNew, err := tx.Findings().SeeDrift(f)
			if err != nil {
				return err
			}
			if isNew {
				b.log.Warn("billing: the backend's usage differs from the ledger's", "environment", env.ID, "field", f.Field,
					"expected", f.Expected, "observed", f.Observed)
			}
		}
		open, err := tx.Findings().OpenDrift(env.Instance)
		if err != nil {
			return err
		}
		for _, f := range open {
			day, ours := strings.CutPrefix(f.Field, usageField(env.ID))
			if f.Kind != sandbox.DriftUsage || !ours || seen[f.Field] {
				continue
			}
			how := resolvedMetered
			if day < first {
				how = resolvedPast
			}
			if err := tx.Findings().ResolveFinding(f.ID, how); err != nil {
				return err
			}
		}
		return nil
	})
}
