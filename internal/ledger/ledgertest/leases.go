package ledgertest

import (
	"slices"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// leaseStatuses lists leases half an hour after their last activity, with a ttl of ten minutes.
func (s suite) leaseStatuses(t *testing.T) {
	t.Parallel()
	h := NewHost()
	store, _ := h.Open(t, s.fresh(t))
	leases := []struct {
		id          string
		phase       sandbox.Phase
		held        time.Duration // 0 for no hold
		maxLifetime time.Duration
		want        sandbox.LeaseStatus
	}{
		{"active", sandbox.PhaseAwake, time.Hour, time.Hour, sandbox.LeaseActive},
		{"gone", sandbox.PhaseGone, time.Hour, time.Hour, sandbox.LeaseDestroyed},
		{"idle", sandbox.PhaseAwake, 0, time.Hour, sandbox.LeaseExpired},
		{"old", sandbox.PhaseAwake, time.Hour, 20 * time.Minute, sandbox.LeaseExpired},
		{"pending", sandbox.PhasePending, time.Hour, time.Hour, sandbox.LeasePending},
		{"pending-idle", sandbox.PhasePending, 0, time.Hour, sandbox.LeaseExpired},
		{"used", sandbox.PhaseAwake, 20 * time.Minute, time.Hour, sandbox.LeaseExpired},
	}
	write(t, store, func(tx *ledger.Tx) error {
		for _, l := range leases {
			if err := Environment(tx, l.id); err != nil {
				return err
			}
			box := Sandbox(tx, l.id, 1)
			box.Phase, box.TTL, box.MaxLifetime = l.phase, micro.SpanOf(10*time.Minute), micro.SpanOf(l.maxLifetime)
			if l.phase == sandbox.PhaseGone {
				box.Desired, box.Ending.By, box.Ending.At = ledger.Gone, sandbox.EndedByRelease, tx.Now
			}
			if err := tx.CreateSandbox(box); err != nil {
				return err
			}
			if err := tx.BeginGeneration(nil, box); err != nil {
				return err
			}
			if l.held > 0 {
				hold := ledger.Hold{SandboxID: box.ID, Holder: l.id, Until: tx.Now.Add(micro.SpanOf(l.held))}
				if err := tx.Holds().Add(&hold); err != nil {
					return err
				}
			}
			p := execs.NewProcess(box, sandbox.ProcessSpec{Name: "web", Command: []string{"serve"},
				Restart: sandbox.RestartNo, Endpoint: &sandbox.Endpoint{Port: 80}}, false, tx.Now)
			if err := execs.In(tx).CreateProcesses([]*execs.Process{p}); err != nil {
				return err
			}
		}
		return nil
	})
	h.Pass(30 * time.Minute)
	read(t, store, func(tx *ledger.Tx) error {
		for _, status := range []sandbox.LeaseStatus{
			sandbox.LeasePending, sandbox.LeaseActive, sandbox.LeaseExpired, sandbox.LeaseDestroyed,
		} {
			rows, err := tx.CurrentSandboxes(sandbox.LeaseFilter{Status: status})
			if err != nil {
				return err
			}
			var got, want []string
			for i := range rows {
				got = append(got, rows[i].EnvironmentID)
			}
			for _, l := range leases {
				if l.want == status {
					want = append(want, l.id)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s leases are %q, want %q", status, got, want)
			}
		}
		agents, err := execs.In(tx).Agents(sandbox.AgentFilter{})
		var of []string
		for i := range agents {
			of = append(of, agents[i].EnvironmentID)
		}
		if want := []string{"active", "pending"}; !slices.Equal(of, want) {
			t.Errorf("agents of the leases %q are listed, want %q", of, want)
		}
		return err
	})
}
