package billing

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Backends that bill by a meter of their own are asked for what they counted, of whole UTC days that have ended.
const (
	// meterDays is how many of them: what is late is counted by then.
	meterDays = 7
	// meterLag is how long after a day's end its figures are taken for complete.
	meterLag = ledger.Span(6 * time.Hour / time.Microsecond)
	// meterTimeout bounds the questions about one environment.
	meterTimeout = time.Minute
)

// How findings about usage are resolved, and what is to be done about them while they are open.
const (
	resolvedMetered = "the backend has counted as the ledger has"
	resolvedPast    = "its day is past: figures are compared for a week"
	adviceMetered   = "costs stay as the ledger counted them: compare them with the backend's invoice"
)

// meter is a figure that both have, and what it may differ by: a share of the larger one, and an amount that starts and
// stops make up for.
type meter struct {
	name, unit string
	// perUnit divides a figure, in seconds of CPU or MB-seconds, into what is shown.
	perUnit      float64
	share, floor float64
}

// What a backend counts of CPU has the machine that runs the container in it, and the ledger's has not.
var (
	meterCPU    = meter{"CPU", "CPU hours", 3600, 0.25, 300}
	meterMemory = meter{"memory", "GiB hours", 3600 * 1024, 0.10, 60 * 1024}
	meterDisk   = meter{"disk", "GB hours", 3600 * 1000, 0.10, 60 * 10_000}
)

func (m meter) show(v float64) string { return fmt.Sprintf("%.2f %s", v/m.perUnit, m.unit) }

// differ reports whether two figures are not the same but for what is tolerated.
func (m meter) differ(a, b float64) bool {
	return math.Abs(a-b) > max(m.floor, m.share*max(a, b))
}

// figures are what was used on one day.
type figures struct{ cpu, memory, disk float64 }

func figuresOfLedger(u ledger.Usage) figures {
	return figures{u.CPU.Duration().D().Seconds(), float64(u.Memory) / 1000, float64(u.Disk) / 1000}
}

func figuresOfBackend(m driver.Metered) figures {
	return figures{m.CPU.Seconds(), m.MemoryMBSeconds, m.DiskMBSeconds}
}

// usageField names, in a finding, a figure of an environment's usage on a day; without figure and day, what such names
// begin with.
func usageField(environmentID string) string { return "usage of environment " + environmentID + " on " }

// CompareUsage compares the ledger's usage of the last days on an instance with what its backend has counted by a meter of
// its own. A difference beyond the tolerance is a finding; no cost changes. It may run at any time, in any number of
// processes. Errors: Forbidden when the credentials do not allow to read the meter.
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
	var failed []error
	for i := range envs {
		env := &envs[i]
		serves := env.Status == sandbox.EnvironmentOpen || env.Status == sandbox.EnvironmentClosed
		if !serves || env.Instance != instance || env.Backend != backend {
			continue
		}
		err := b.reconcileEnvironment(ctx, m, env, days, used[env.ID])
		if sandbox.CodeOf(err) == sandbox.Forbidden {
			return err // the others would be refused, too
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("comparing the usage of environment %s: %w", env.ID, err))
		}
	}
	return errors.Join(failed...)
}

// usageByDay returns what was used on an instance by environment and day, in whole days.
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

// reconcileEnvironment compares one environment. The day on which it was made is left out: there may have been another
// one of its name.
func (b *Service) reconcileEnvironment(ctx context.Context, m driver.Meter, env *ledger.Environment, days stretch, used map[string]ledger.Usage) error {
	days.from = max(days.from, midnight(env.CreatedAt).Add(oneDay))
	if days.from >= days.to {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, meterTimeout)
	defer cancel()
	list, err := m.Metered(bounded, driver.EnvironmentRef{LedgerID: b.store.ID(), EnvironmentID: env.ID, Instance: env.Instance}, days.from.Time(), days.to.Time())
	if err != nil {
		return err
	}
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

// compareUsage returns in what one day differs. Pure.
func compareUsage(env *ledger.Environment, day string, ours, theirs figures) (found []ledger.DriftFinding) {
	for _, c := range []struct {
		meter
		ours, theirs float64
	}{{meterCPU, ours.cpu, theirs.cpu}, {meterMemory, ours.memory, theirs.memory}, {meterDisk, ours.disk, theirs.disk}} {
		if c.differ(c.ours, c.theirs) {
			found = append(found, ledger.DriftFinding{
				Kind: sandbox.DriftUsage, EnvironmentID: env.ID, Instance: env.Instance, Field: usageField(env.ID) + day + ": " + c.name,
				Expected: c.show(c.ours), Observed: c.show(c.theirs), Resolution: adviceMetered,
			})
		}
	}
	return found
}

// recordUsage records what was found of days from a first one on, and resolves what agrees or is past.
func (b *Service) recordUsage(ctx context.Context, env *ledger.Environment, first string, found []ledger.DriftFinding) error {
	return b.store.Write(ctx, func(tx *ledger.Tx) error {
		seen := make(map[string]bool)
		for _, f := range found {
			seen[f.Field] = true
			_, isNew, err := tx.Findings().SeeDrift(f)
			if err != nil {
				return err
			}
			if isNew {
				b.log.Warn("billing: the backend has counted another usage", "environment", env.ID, "field", f.Field, "expected", f.Expected, "observed", f.Observed)
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
