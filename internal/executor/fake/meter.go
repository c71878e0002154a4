package fake

import (
	"context"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var _ sandbox.Meter = (*Executor)(nil)

// Metered implements sandbox.Meter.
func (x *Executor) Metered(ctx context.Context, ref sandbox.EnvironmentRef, from, to time.Time) ([]sandbox.Metered, error) {
	if err := x.enter(ctx, OpMeter, ref.Instance); err != nil {
		return nil, err
	}
	defer x.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(x.metered), func(m sandbox.Metered) bool { return m.Day.Before(from) || !m.Day.Before(to) }), nil
}
