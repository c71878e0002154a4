package fake

import (
	"context"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
)

var _ driver.Meter = (*Executor)(nil)

// Metered implements driver.Meter.
func (x *Executor) Metered(ctx context.Context, ref driver.EnvironmentRef, from, to time.Time) ([]driver.Metered, error) {
	if err := x.enter(ctx, OpMeter, ref.Instance); err != nil {
		return nil, err
	}
	defer x.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(x.metered), func(m driver.Metered) bool { return m.Day.Before(from) || !m.Day.Before(to) }), nil
}
