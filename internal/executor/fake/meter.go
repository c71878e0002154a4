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
	from, to time.Time) (map[driver.EnvironmentRef][]driver.Metered, error) {
	all := make(map[driver.EnvironmentRef][]driver.Metered, len(refs))
	for _, ref := range refs {
		if err := x.enter(ctx, OpMeter, ref.Instance); err != nil {
			return nil, err
		}
		all[ref] = slices.DeleteFunc(slices.Clone(x.metered),
			func(m driver.Metered) bool { return m.Day.Before(from) || !m.Day.Before(to) })
		x.mu.Unlock()
	}
	return all, nil
}
