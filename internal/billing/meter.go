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
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/drift"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// For backends with their own meter, billing compares whole UTC days that have ended.
const (
	// meterDays is the number of days to compare. Late figures arrive within that time.
	meterDays = 7
	// meterLag is the time after a day's end at which its figures count as complete.
	meterLag = micro.Span(6 * time.Hour / time.Microsecond)
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

func figuresOfLedger(u accounting.Usage) figures {
	return figures{u.CPU.Duration().D().Seconds(), float64(u.Memory) / 1000, float64(u.Disk) / 1000}
}

func figuresOfBackend(m driver.Metered) figures {
	return figures{m.CPU.Seconds(), m.MemoryMBSeconds, m.DiskMBSeconds}
}

// sharing is the subject of a comparison of environments that the backend counts together.
const sharing = "the environments that share an application"

// usageField is the prefix of the fields of findings about a subject. A day and the name of a figure follow.
func usageField(subject string) string { return "usage of " + subject + " on " }

// recorded is what the ledger has to compare on an instance.
type recorded struct {
	instance string
	days     stretch
	envs     []ledger.Environment
	used     map[string]map[string]accounting.Usage // by environment, destroyed ones too, and day
}

// comparison is about one environment, or about environments that the backend counts together.
type comparison struct {
	subject       string
	environmentID string // "" for environments that are counted together
	instance      string
	days          stretch
	ours          map[string]accounting.Usage // by day
	theirs        *driver.MeteredGroup        // nil: the backend has nothing
}

// CompareUsage compares the ledger's usage of the last days on an instance with the backend's own meter. A
// difference beyond the tolerance becomes a finding. Costs do not change. Any number of processes may call it
// at any time. Errors: Forbidden if the credentials may not read the meter.
func (b *Service) CompareUsage(ctx context.Context, m driver.Meter, backend sandbox.Backend, instance string) error {
	r, err := b.readRecorded(ctx, backend, instance)
	if err != nil {
		return err
	}
	groups, err := b.readMeter(ctx, m, r)
	if err != nil {
		return err
	}
	var failed []error
	for _, c := range r.comparisons(groups) {
		if err := b.compare(ctx, c); err != nil {
			failed = append(failed, fmt.Errorf("comparing the usage of %s: %w", c.subject, err))
		}
	}
	return errors.Join(append(failed, b.expireUsage(ctx, instance, r.days.from))...)
}

// readMeter reads the backend's figures. Without environments, it does not ask.
func (b *Service) readMeter(ctx context.Context, m driver.Meter, r recorded) ([]driver.MeteredGroup, error) {
	if len(r.envs) == 0 {
		return nil, nil
	}
	refs := make([]driver.EnvironmentRef, len(r.envs))
	for i := range r.envs {
		refs[i] = driver.EnvironmentRef{LedgerID: b.store.ID(), EnvironmentID: r.envs[i].ID, Instance: r.instance}
	}
	bounded, cancel := context.WithTimeout(ctx, meterTimeout)
	defer cancel()
	return m.Metered(bounded, refs, r.days.from.Time(), r.days.to.Time())
}

// readRecorded reads the environments to compare, and the usage of all.
func (b *Service) readRecorded(ctx context.Context, backend sandbox.Backend, instance string) (recorded, error) {
	r := recorded{instance: instance}
	err := b.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		r.days.to = (tx.Now - micro.Time(meterLag)).Midnight()
		r.days.from = r.days.to.Add(-meterDays * micro.Day)
		if r.envs, err = tx.Environments(); err != nil {
			return err
		}
		r.used, err = usageByDay(tx, instance, r.days)
		return err
	})
	r.envs = slices.DeleteFunc(r.envs, func(env ledger.Environment) bool {
		serves := env.Status == sandbox.EnvironmentOpen || env.Status == sandbox.EnvironmentClosed
		return !serves || env.Instance != instance || env.Backend != backend || firstMetered(&env, r.days) >= r.days.to
	})
	return r, err
}

// firstMetered is the first day on which an environment is compared. It skips the day of its creation, because an
// earlier environment may have had the same name.
func firstMetered(env *ledger.Environment, days stretch) micro.Time {
	return max(days.from, nextMidnight(env.CreatedAt))
}

func nextMidnight(t micro.Time) micro.Time { return t.Midnight().Add(micro.Day) }

// comparisons matches the ledger's environments with the backend's groups.
func (r recorded) comparisons(groups []driver.MeteredGroup) (list []comparison) {
	alone, shares := make(map[string]*driver.MeteredGroup), make(map[string]bool)
	for i := range groups {
		g := &groups[i]
		for _, ref := range g.Environments {
			if g.Shared {
				shares[ref.EnvironmentID] = true
			} else {
				alone[ref.EnvironmentID] = g
			}
		}
		if g.Shared {
			list = append(list, r.together(g))
		}
	}
	for i := range r.envs {
		env := &r.envs[i]
		if g := alone[env.ID]; g != nil || !shares[env.ID] {
			list = append(list, r.single(env, g))
		}
	}
	return list
}

func (r recorded) single(env *ledger.Environment, g *driver.MeteredGroup) comparison {
	days := stretch{firstMetered(env, r.days), r.days.to}
	if g != nil {
		days.from = max(days.from, nextMidnight(micro.At(g.Since)))
	}
	return comparison{"environment " + env.ID, env.ID, r.instance, days, r.used[env.ID], g}
}

// together sums the usage of environments that the backend counts together. It includes the days of their creation,
// because the figures on both sides include an earlier environment that had the same name.
func (r recorded) together(g *driver.MeteredGroup) comparison {
	days := stretch{max(r.days.from, nextMidnight(micro.At(g.Since))), r.days.to}
	sum := make(map[string]accounting.Usage)
	for _, ref := range g.Environments {
		for day, u := range r.used[ref.EnvironmentID] {
			sum[day] = sum[day].Plus(u)
		}
	}
	return comparison{sharing, "", r.instance, days, sum, g}
}

// usageByDay returns the usage on an instance by environment and whole day.
func usageByDay(tx *ledger.Tx, instance string, in stretch) (map[string]map[string]accounting.Usage, error) {
	used := make(map[string]map[string]accounting.Usage)
	add := func(environment, day string, u accounting.Usage) {
		if used[environment] == nil {
			used[environment] = make(map[string]accounting.Usage)
		}
		used[environment][day] = used[environment][day].Plus(u)
	}
	err := accounting.In(tx).CostDays(dayOf(in.from), dayOf(in.to), true, func(u accounting.LeaseUsage) {
		if u.Instance == instance {
			add(u.EnvironmentID, u.Day, u.Usage)
		}
	})
	if err != nil {
		return nil, err
	}
	periods, err := accounting.In(tx).UnrolledPeriods()
	for i := range periods {
		if p := &periods[i]; p.Instance == instance {
			for x := range partsIn(p, in, tx.Now) {
				add(p.EnvironmentID, dayOf(x.from), x.usage(p, sandbox.PriceBook{}))
			}
		}
	}
	return used, err
}

// compare records the differences of a comparison.
func (b *Service) compare(ctx context.Context, c comparison) error {
	if c.theirs == nil {
		return sandbox.Errorf(sandbox.NotFound, "the backend has no usage for this environment")
	}
	billed := make(map[string]figures)
	for _, d := range c.theirs.Days {
		billed[d.Day.UTC().Format(time.DateOnly)] = figuresOfBackend(d)
	}
	var found []drift.Finding
	for day := c.days.from; day < c.days.to; day = day.Add(micro.Day) {
		name := dayOf(day)
		found = append(found, c.differences(name, figuresOfLedger(c.ours[name]), billed[name])...)
	}
	return b.recordUsage(ctx, c, found)
}

// differences returns the differences of one day. It is a pure function.
func (c comparison) differences(day string, ours, theirs figures) (found []drift.Finding) {
	for _, f := range []struct {
		meter
		ours, theirs float64
	}{{meterCPU, ours.cpu, theirs.cpu}, {meterMemory, ours.memory, theirs.memory}, {meterDisk, ours.disk, theirs.disk}} {
		if f.differ(f.ours, f.theirs) {
			found = append(found, drift.Finding{
				Kind:          sandbox.DriftUsage,
				EnvironmentID: c.environmentID,
				Instance:      c.instance,
				Field:         usageField(c.subject) + day + ": " + f.name,
				Expected:      f.show(f.ours),
				Observed:      f.show(f.theirs),
				Resolution:    adviceMetered,
			})
		}
	}
	return found
}

// recordUsage records the findings of a comparison, and resolves earlier ones whose figures now agree.
func (b *Service) recordUsage(ctx context.Context, c comparison, found []drift.Finding) error {
	return b.store.Write(ctx, func(tx *ledger.Tx) error {
		seen := make(map[string]bool)
		for _, f := range found {
			seen[f.Field] = true
			_, isNew, err := drift.In(tx).See(f)
			if err != nil {
				return err
			}
			if isNew {
				b.log.Warn("billing: the backend's usage differs from the ledger's", "environment", c.environmentID,
					"instance", c.instance, "field", f.Field, "expected", f.Expected, "observed", f.Observed)
			}
		}
		return resolveUsage(tx, c.instance, resolvedMetered, func(field string) bool {
			day, ours := strings.CutPrefix(field, usageField(c.subject))
			return ours && day >= dayOf(c.days.from) && !seen[field]
		})
	})
}

// expireUsage resolves the findings of days before first. Their environments may be gone.
func (b *Service) expireUsage(ctx context.Context, instance string, first micro.Time) error {
	return b.store.Write(ctx, func(tx *ledger.Tx) error {
		return resolveUsage(tx, instance, resolvedPast, func(field string) bool {
			_, day, _ := strings.Cut(field, " on ")
			return day < dayOf(first)
		})
	})
}

// resolveUsage resolves the open findings of usage whose field is chosen.
func resolveUsage(tx *ledger.Tx, instance, how string, chosen func(field string) bool) error {
	open, err := drift.In(tx).Open(instance)
	if err != nil {
		return err
	}
	for _, f := range open {
		if f.Kind != sandbox.DriftUsage || !chosen(f.Field) {
			continue
		}
		if err := drift.In(tx).Resolve(f.ID, how); err != nil {
			return err
		}
	}
	return nil
}
