package fake

import (
	"context"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
)

var _ driver.Meter = (*Executor)(nil)

// Metered implements driver.Meter.
func (x *Executor) Metered(ctx context.Context, refs []driver.EnvironmentRef,
	from, to time.Time) ([]driver.MeteredGroup, error) {
	var alone, groups []driver.MeteredGroup
	for _, ref := range refs {
		if err := x.enter(ctx, OpMeter, ref.Instance); err != nil {
			return nil, err
		}
		switch {
		case x.together != nil && slices.Contains(x.together.Environments, ref):
			groups = []driver.MeteredGroup{*x.together}
		case x.metered != nil:
			alone = append(alone, driver.MeteredGroup{Environments: []driver.EnvironmentRef{ref}, Days: x.metered})
		}
		x.mu.Unlock()
	}
	groups = append(groups, alone...)
	for i := range groups {
		groups[i].Days = slices.DeleteFunc(slices.Clone(groups[i].Days),
			func(m driver.Metered) bool { return m.Day.Before(from) || !m.Day.Before(to) })
	}
	return groups, nil
}
