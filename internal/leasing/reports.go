package leasing

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/deliveries"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/drift"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/nearest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ListEvents implements service.Reports.
func (v *Service) ListEvents(ctx context.Context, f sandbox.EventFilter) (events []sandbox.Event, err error) {
	if err := f.CheckLimit(); err != nil {
		return nil, err
	}
	if err := checkEventType(f.Type); err != nil {
		return nil, err
	}
	err = v.store.Read(ctx, func(tx *ledger.Tx) error {
		events, err = tx.Events(f)
		return err
	})
	return events, err
}

// checkEventType refuses the type of a filter that selects no type. Errors: Invalid.
func checkEventType(selected string) error {
	start, isStart := strings.CutSuffix(selected, "*")
	group, _, _ := strings.Cut(selected, ".")
	var types, groups, siblings []string
	for _, t := range sandbox.EventTypes {
		name := string(t)
		if selected == "" || name == selected || isStart && strings.HasPrefix(name, start) {
			return nil
		}
		of, _, _ := strings.Cut(name, ".")
		types, groups = append(types, name), append(groups, of+".*")
		if of == group {
			siblings = append(siblings, name)
		}
	}
	groups = slices.Compact(groups)
	problem := fmt.Sprintf("%q is no event type", selected)
	meant := nearest.To(selected, append(types, groups...))
	switch {
	case selected == group && len(siblings) > 0:
		problem += "; did you mean " + group + ".*?"
	case meant != "":
		problem += "; did you mean " + meant + "?"
	case len(siblings) > 0:
		problem += "; those of " + group + ".* are " + strings.Join(siblings, ", ")
	default:
		problem += "; the types are " + strings.Join(groups, ", ")
	}
	return sandbox.InvalidFields("event filter", []sandbox.Field{{Name: "type", Problem: problem}})
}

// FollowEvents implements service.Reports.
func (v *Service) FollowEvents(ctx context.Context, f sandbox.EventFilter, yield func(sandbox.Event) error) error {
	if f.Latest {
		return sandbox.InvalidFields("event filter",
			[]sandbox.Field{{Name: "latest", Problem: "cannot be followed: events come in the order in which they happen"}})
	}
	if err := checkEventType(f.Type); err != nil {
		return err
	}
	f.Limit = 0
	return lifecycle.Follow(ctx, v.store, v.Life(), func() ([]sandbox.Event, lifecycle.Next, error) {
		events, last, err := v.nextEvents(ctx, f)
		if n := len(events); n > 0 {
			f.AfterID = events[n-1].ID
			if f.SandboxID != "" {
				f.FromSequence = events[n-1].Sequence
			}
		}
		if len(events) == sandbox.MaxPage {
			return events, lifecycle.More, err
		}
		f.AfterID = last // the filter's omissions were passed too
		return events, lifecycle.Wait, err
	}, yield, func() {
		if f.Reached != nil {
			f.Reached.Store(f.AfterID)
		}
	})
}

// nextEvents returns a page of events and the id of the latest event, both from one snapshot.
func (v *Service) nextEvents(ctx context.Context,
	f sandbox.EventFilter) (events []sandbox.Event, last int64, err error) {
	err = v.store.Read(ctx, func(tx *ledger.Tx) error {
		if events, err = tx.Events(f); err != nil {
			return err
		}
		feed, err := tx.Feed()
		last = feed.Last
		return err
	})
	return events, last, err
}

// ListDrift implements service.Reports.
func (v *Service) ListDrift(ctx context.Context, f sandbox.DriftFilter) (findings []sandbox.DriftFinding, err error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	err = v.store.Read(ctx, func(tx *ledger.Tx) error {
		findings, err = drift.In(tx).List(f)
		return err
	})
	return findings, err
}

// ListDeliveries implements service.Reports.
func (v *Service) ListDeliveries(ctx context.Context,
	f sandbox.DeliveryFilter) (list []sandbox.StoredDelivery, err error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	err = v.store.Read(ctx, func(tx *ledger.Tx) error {
		rows, err := deliveries.In(tx).List(f)
		for i := range rows {
			list = append(list, rows[i].Domain())
		}
		return err
	})
	return list, err
}
