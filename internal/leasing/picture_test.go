package leasing_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// picture is the state of the ledger and the backend at one time.
type picture struct {
	now     time.Time
	leases  []sandbox.Lease            // by id, in their current generations
	rows    map[string]*ledger.Sandbox // all sandboxes ever, by id
	held    map[string]micro.Time      // when its last use ends
	periods map[string][]accounting.UsagePeriod
	drift   []sandbox.DriftFinding
	events  []sandbox.Event
	books   map[string]sandbox.PriceBook // by id
	costs   sandbox.CostReport
	byDay   sandbox.CostReport
	boxes   map[string]driver.Observation
	execs   map[string]sandbox.Exec // by id
}

// look reads everything. No request or loop may be at work.
func look(ctx context.Context, store *ledger.Store, engine *leasing.Service,
	boxes map[string]driver.Observation) (*picture, error) {
	p := &picture{
		now:     store.Now(),
		rows:    make(map[string]*ledger.Sandbox),
		periods: make(map[string][]accounting.UsagePeriod),
		boxes:   boxes,
		execs:   make(map[string]sandbox.Exec),
	}
	var err error
	if p.leases, err = engine.ListLeases(ctx, sandbox.LeaseFilter{}); err != nil {
		return nil, err
	}
	for _, l := range p.leases {
		execs, err := engine.ListExecs(ctx, sandbox.ExecFilter{LeaseID: l.ID})
		if err != nil {
			return nil, err
		}
		for _, x := range execs {
			p.execs[x.ID] = x
		}
	}
	if p.events, err = allEvents(ctx, engine); err != nil {
		return nil, err
	}
	if p.drift, err = engine.ListDrift(ctx, sandbox.DriftFilter{Status: sandbox.DriftOpen}); err != nil {
		return nil, err
	}
	if p.costs, err = engine.Costs(ctx, sandbox.CostQuery{}); err != nil {
		return nil, err
	}
	if p.byDay, err = engine.Costs(ctx, sandbox.CostQuery{GroupBy: sandbox.CostByDay}); err != nil {
		return nil, err
	}
	return p, store.Read(ctx, p.readRows)
}

func (p *picture) readRows(tx *ledger.Tx) (err error) {
	ids := p.sandboxIDs()
	for _, id := range ids {
		if p.rows[id], err = tx.Sandbox(id); err != nil {
			return err
		}
	}
	if p.held, err = tx.Holds().UntilOf(ids); err != nil {
		return err
	}
	if p.books, err = accounting.In(tx).PriceBooks(); err != nil {
		return err
	}
	periods, err := accounting.In(tx).PeriodsOf(ids)
	for _, u := range periods {
		p.periods[u.SandboxID] = append(p.periods[u.SandboxID], u)
	}
	return err
}

// sandboxIDs returns every sandbox with an event, oldest first.
func (p *picture) sandboxIDs() (ids []string) {
	for _, e := range p.events {
		if e.Sequence == 1 {
			ids = append(ids, e.SandboxID)
		}
	}
	return ids
}

func allEvents(ctx context.Context, engine *leasing.Service) (all []sandbox.Event, err error) {
	for {
		f := sandbox.EventFilter{}
		if len(all) > 0 {
			f.AfterID = all[len(all)-1].ID
		}
		page, err := engine.ListEvents(ctx, f)
		all = append(all, page...)
		if err != nil || len(page) < sandbox.MaxPage {
			return all, err
		}
	}
}

// name names a sandbox in a failure's text, which must be the same in each run.
func (p *picture) name(id string) string {
	s := p.rows[id]
	switch {
	case s == nil:
		return "a sandbox without a row"
	case s.LeaseID == nil:
		return "a sandbox of the pool of " + s.EnvironmentID
	default:
		return fmt.Sprintf("%s generation %d", s.Lease(), s.Generation)
	}
}

// generations returns the rows of each lease, oldest first.
func (p *picture) generations() map[string][]*ledger.Sandbox {
	all := make(map[string][]*ledger.Sandbox)
	for _, s := range p.rows {
		if s.LeaseID != nil {
			all[s.Lease()] = append(all[s.Lease()], s)
		}
	}
	for _, rows := range all {
		slices.SortFunc(rows, func(a, b *ledger.Sandbox) int { return int(a.Generation - b.Generation) })
	}
	return all
}

// eventsOf returns each sandbox's events in the order of their ids.
func (p *picture) eventsOf() map[string][]sandbox.Event {
	all := make(map[string][]sandbox.Event)
	for _, e := range p.events {
		if e.SandboxID != "" {
			all[e.SandboxID] = append(all[e.SandboxID], e)
		}
	}
	return all
}

// steppedAfter reports whether the clock was stepped after an event.
func (p *picture) steppedAfter(id int64) bool {
	return slices.ContainsFunc(p.events,
		func(e sandbox.Event) bool { return e.ID > id && e.Type == sandbox.EventClockStepped })
}

// steppedSince returns by how much the clock was stepped since an earlier picture.
func (p *picture) steppedSince(before *picture) (sum time.Duration, err error) {
	last := int64(0)
	if n := len(before.events); n > 0 {
		last = before.events[n-1].ID
	}
	for _, e := range p.events {
		if e.ID <= last || e.Type != sandbox.EventClockStepped {
			continue
		}
		var step ledger.ClockStep
		if err := json.Unmarshal(e.Data, &step); err != nil {
			return 0, err
		}
		sum += time.Duration(step.Seconds * float64(time.Second))
	}
	return sum, nil
}

// holds checks every invariant of a world at rest, without an earlier picture.
func (w *world) holds(p *picture, k known) {
	w.Helper()
	for _, e := range p.events {
		k.live = append(k.live, e.ID)
	}
	for _, i := range slices.Concat(invariants, converged) {
		if broken := i.broken(p, &k); broken != "" {
			w.Errorf("%s: %s", i.says, broken)
		}
	}
}
