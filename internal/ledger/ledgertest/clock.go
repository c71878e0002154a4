package ledgertest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/drift"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Host is a host whose clock can be set.
type Host struct {
	mu     sync.Mutex // guards what follows
	clock  time.Time
	boot   time.Duration
	bootID string
}

// NewHost returns a host that booted an hour ago.
func NewHost() *Host {
	return &Host{clock: time.Date(2026, 8, 15, 12, 0, 0, 0, time.UTC), boot: time.Hour, bootID: "boot-1"}
}

// Options returns the options of a ledger on the host.
func (h *Host) Options() ledger.Options {
	h.mu.Lock()
	defer h.mu.Unlock()
	return ledger.Options{Now: h.Now, Boot: h.Boot, BootID: h.bootID, Poll: 10 * time.Millisecond}
}

// Now returns the time of the host's clock.
func (h *Host) Now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.clock
}

// Boot returns the time since the host booted.
func (h *Host) Boot() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.boot
}

// Pass lets time pass, suspended or not.
func (h *Host) Pass(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock, h.boot = h.clock.Add(d), h.boot+d
}

// Step sets the clock forward, or back.
func (h *Host) Step(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock = h.clock.Add(d)
}

// Reboot reboots the host. step is the change of its clock meanwhile.
func (h *Host) Reboot(step time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock, h.boot, h.bootID = h.clock.Add(step), time.Second, h.bootID+"'"
}

// Open opens a ledger on the host until the test ends or shut is called.
func (h *Host) Open(t *testing.T, url string) (s *ledger.Store, shut func()) {
	t.Helper()
	s, err := ledger.Open(t.Context(), url, h.Options())
	if err != nil {
		t.Fatal(err)
	}
	shut = func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(shut)
	return s, shut
}

const (
	ttl      = time.Hour
	endingID = "ending"
)

// living creates a sandbox that is awake, in use and billed, with an hour to live, and one that is being removed.
func living(t *testing.T, s *ledger.Store) (id string) {
	t.Helper()
	write(t, s, func(tx *ledger.Tx) error {
		ending := Sandbox(tx, "catan-6", 1)
		ending.ID, ending.Phase, ending.Desired = endingID, sandbox.PhaseAwake, ledger.Gone
		ending.Ending.By, ending.Ending.At = sandbox.EndedByRelease, tx.Now
		if err := errors.Join(Environment(tx, "catan-6"), tx.CreateSandbox(ending)); err != nil {
			return err
		}
		if err := Environment(tx, "catan-7"); err != nil {
			return err
		}
		row := Sandbox(tx, "catan-7", 1)
		id = row.ID
		row.Phase, row.TTL, row.MaxLifetime = sandbox.PhaseAwake, micro.SpanOf(ttl), micro.SpanOf(24*ttl)
		row.ReadyAt, row.Schedule.DueAt = tx.Now, tx.Now.Add(row.TTL)
		row.Pending = ledger.Pending{Secrets: tx.Now, Renewal: tx.Now, RenewedAt: tx.Now}
		row.CompanionStates = ledger.CompanionStates{
			"cache": {State: sandbox.CompanionReady, Since: tx.Now.Time(), CheckAt: tx.Now.Add(row.TTL).Time()},
			"db":    {State: sandbox.CompanionStarting, Since: tx.Now.Time(), RestartAt: tx.Now.Add(row.TTL).Time()},
			"fresh": {State: sandbox.CompanionStarting},
		}
		if err := tx.CreateSandbox(row); err != nil {
			return err
		}
		if err := tx.Holds().Add(&ledger.Hold{SandboxID: id, Holder: "command", Until: tx.Now.Add(row.TTL)}); err != nil {
			return err
		}
		if _, _, err := drift.In(tx).
			See(drift.Finding{Kind: sandbox.DriftOrphan, SandboxID: "orphan", Instance: row.Instance}); err != nil {
			return err
		}
		book, err := accounting.In(tx).KeepPriceBook(sandbox.Docker, sandbox.PriceBook{Name: "free"})
		if err != nil {
			return err
		}
		return accounting.In(tx).EnterState(row, sandbox.PhaseAwake, tx.Now, book)
	})
	return id
}

// wantLeft checks the remaining times on the host's clock, and the used time.
func wantLeft(t *testing.T, s *ledger.Store, id string, left, used time.Duration) {
	t.Helper()
	read(t, s, func(tx *ledger.Tx) error {
		row, err := tx.Sandbox(id)
		if err != nil {
			return err
		}
		held, err := tx.Holds().Until(id)
		if err != nil {
			return err
		}
		period, err := accounting.In(tx).OpenPeriod(id)
		if err != nil {
			return err
		}
		ending, err := tx.Sandbox(endingID)
		if err != nil {
			return err
		}
		cache, db, fresh := row.CompanionStates["cache"], row.CompanionStates["db"], row.CompanionStates["fresh"]
		for what, at := range map[string]time.Time{
			"lease":             row.LastActivity.Add(row.TTL).Time(),
			"retry":             row.Schedule.DueAt.Time(),
			"hold":              held.Time(),
			"companion restart": db.RestartAt,
			"companion check":   cache.CheckAt,
		} {
			if d := at.Sub(tx.Now.Time()); d != left {
				t.Errorf("%s: %v are left, want %v", what, d, left)
			}
		}
		for what, at := range map[string]time.Time{
			"pending secrets": row.Pending.Secrets.Time(),
			"pending renewal": row.Pending.Renewal.Time(),
			"renewal":         row.Pending.RenewedAt.Time(),
			"companion state": cache.Since,
			"end":             ending.Ending.At.Time(),
		} {
			if d := tx.Now.Time().Sub(at); d != used {
				t.Errorf("%s: it was %v ago, want %v", what, d, used)
			}
		}
		if !fresh.Since.IsZero() || !cache.RestartAt.IsZero() || !db.CheckAt.IsZero() {
			t.Errorf("times that were not set are now: %+v", row.CompanionStates)
		}
		found, err := drift.In(tx).Open(row.Instance)
		if err != nil || len(found) != 1 {
			t.Fatalf("%d findings are open, want one: %v", len(found), err)
		}
		if d := tx.Now.Time().Sub(found[0].FirstSeenAt.Time()); d != used {
			t.Errorf("the orphan is known for %v, want %v", d, used)
		}
		if d := tx.Now.Time().Sub(period.StartedAt.Time()); d != used {
			t.Errorf("%v were used, want %v", d, used)
		}
		if claimed := row.Claim.Until; claimed != 0 {
			t.Errorf("claimed until %v, want never claimed", claimed)
		}
		return nil
	})
}

func nothing(*ledger.Tx) error { return nil }

func (x suite) clockSteps(t *testing.T) {
	t.Parallel()
	h := NewHost()
	s, _ := h.Open(t, x.fresh(t))
	id := living(t, s)
	for _, step := range []time.Duration{24 * time.Hour, -48 * time.Hour, 365 * 24 * time.Hour} {
		h.Step(step)
		wantLeft(t, s, id, ttl, 0) // after a read only
		write(t, s, nothing)
		wantLeft(t, s, id, ttl, 0)
	}
	h.Pass(20 * time.Minute)
	wantLeft(t, s, id, ttl-20*time.Minute, 20*time.Minute)
	read(t, s, func(tx *ledger.Tx) error {
		events, err := tx.Events(sandbox.EventFilter{})
		if err == nil && len(events) != 3 {
			t.Errorf("there are %d events, want one for each step", len(events))
		}
		return err
	})
}

func (x suite) suspended(t *testing.T) {
	t.Parallel()
	h := NewHost()
	s, _ := h.Open(t, x.fresh(t))
	id := living(t, s)
	h.Pass(8 * time.Hour) // a suspended host
	wantLeft(t, s, id, ttl-8*time.Hour, 8*time.Hour)
	for range 100 { // NTP corrects in small steps
		h.Pass(time.Second)
		h.Step(100 * time.Millisecond)
		write(t, s, nothing)
	}
	wantLeft(t, s, id, ttl-8*time.Hour-110*time.Second, 8*time.Hour+110*time.Second)
}

func (x suite) clockStepsOnce(t *testing.T) {
	t.Parallel()
	h, url := NewHost(), x.fresh(t)
	one, _ := h.Open(t, url)
	id := living(t, one)
	two, _ := h.Open(t, url)
	write(t, two, nothing)
	h.Step(24 * time.Hour)
	write(t, one, nothing)
	write(t, two, nothing)
	wantLeft(t, one, id, ttl, 0)
	h.Step(-24 * time.Hour)
	write(t, two, nothing)
	h.Step(time.Hour) // one store has not looked since the previous step
	write(t, one, nothing)
	write(t, two, nothing)
	wantLeft(t, two, id, ttl, 0)
}

func (x suite) stepBetweenProcesses(t *testing.T) {
	t.Parallel()
	h, url := NewHost(), x.fresh(t)
	s, shut := h.Open(t, url)
	id := living(t, s)
	shut()
	h.Pass(10 * time.Minute)
	h.Step(24 * time.Hour)
	s, _ = h.Open(t, url)
	wantLeft(t, s, id, ttl-10*time.Minute, 10*time.Minute)
}

func (x suite) clockBackOverReboot(t *testing.T) {
	t.Parallel()
	h, url := NewHost(), x.fresh(t)
	s, shut := h.Open(t, url)
	id := living(t, s)
	shut()
	h.Reboot(-365 * 24 * time.Hour) // its clock has no battery
	s, shut = h.Open(t, url)
	wantLeft(t, s, id, ttl, 0)
	h.Step(365 * 24 * time.Hour) // the network corrects the clock
	wantLeft(t, s, id, ttl, 0)
	shut()
	h.Reboot(30 * time.Minute) // it was off for 30 minutes
	s, _ = h.Open(t, url)
	wantLeft(t, s, id, ttl-30*time.Minute, 30*time.Minute)
}
