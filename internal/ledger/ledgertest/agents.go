package ledgertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// agents lists processes that serve HTTP, in all states of the processes and their sandboxes.
func (s suite) agents(t *testing.T) {
	store := open(t, s.fresh(t), nil)
	phases := []sandbox.Phase{
		sandbox.PhasePending, sandbox.PhaseAwake, sandbox.PhaseAsleep, sandbox.PhaseAwake, sandbox.PhaseGone,
	}
	states := []sandbox.ProcessState{
		sandbox.ProcessPending, sandbox.ProcessRunning, sandbox.ProcessExited, sandbox.ProcessFailed, sandbox.ProcessStopped,
	}
	write(t, store, func(tx *ledger.Tx) error {
		for i, phase := range phases {
			id := fmt.Sprintf("catan-%d", i)
			if err := Environment(tx, id); err != nil {
				return err
			}
			box := Sandbox(tx, id, 1)
			box.Phase, box.TTL, box.MaxLifetime = phase, micro.SpanOf(time.Hour), micro.SpanOf(time.Hour)
			box.LastActivity = tx.Now
			if i == 3 || phase == sandbox.PhaseGone {
				box.Desired, box.Ending.By, box.Ending.At = ledger.Gone, sandbox.EndedByRelease, tx.Now
			}
			if err := tx.CreateSandbox(box); err != nil {
				return err
			}
			if err := tx.BeginGeneration(nil, box); err != nil {
				return err
			}
			for _, state := range states {
				p := execs.NewProcess(box, sandbox.ProcessSpec{
					Name: string(state), Command: []string{"serve"}, Restart: sandbox.RestartNo,
					Endpoint: &sandbox.Endpoint{Port: 80, Description: "Serves."},
				}, false, tx.Now)
				p.State = state
				plain := execs.NewProcess(box, sandbox.ProcessSpec{
					Name: "plain-" + string(state), Command: []string{"work"}, Restart: sandbox.RestartNo,
				}, false, tx.Now)
				if err := execs.In(tx).CreateProcesses([]*execs.Process{p, plain}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	read(t, store, func(tx *ledger.Tx) error {
		all, err := execs.In(tx).Agents(sandbox.AgentFilter{})
		if err != nil || len(all) != 3*len(states) { // only of leases that have not ended
			t.Fatalf("%d agents are listed, %v", len(all), err)
		}
		counts := map[sandbox.AgentState]int{}
		for i := range all {
			a := all[i].Domain()
			counts[a.State]++
			if a.Description != "Serves." || a.Port != 80 || a.ID != a.LeaseID+"/"+a.Name {
				t.Errorf("one is %+v", a)
			}
			if i > 0 && all[i-1].Domain().ID >= a.ID {
				t.Errorf("%s comes after %s", a.ID, all[i-1].Domain().ID)
			}
			rest, err := execs.In(tx).Agents(sandbox.AgentFilter{After: a.ID})
			if err != nil || len(rest) != len(all)-i-1 {
				t.Errorf("after %s, %d agents are listed, %v", a.ID, len(rest), err)
			}
		}
		want := map[sandbox.AgentState]int{
			sandbox.AgentEnded: 9, sandbox.AgentAsleep: 2, sandbox.AgentRunning: 1, sandbox.AgentStarting: 3,
		}
		for state, n := range want {
			some, err := execs.In(tx).Agents(sandbox.AgentFilter{State: state})
			if err != nil || len(some) != n || counts[state] != n {
				t.Errorf("%d are listed as %s, %d have that state, want %d, %v", len(some), state, counts[state], n, err)
			}
			for i := range some {
				if got := some[i].Domain().State; got != state {
					t.Errorf("one that is listed as %s is %s", state, got)
				}
			}
		}
		if none, err := execs.In(tx).Agents(sandbox.AgentFilter{EnvironmentID: "catan-4"}); err != nil || len(none) != 0 {
			t.Errorf("of an environment whose lease has ended, %+v are listed, %v", none, err)
		}
		some, err := execs.In(tx).Agents(sandbox.AgentFilter{EnvironmentID: "catan-1", LeaseID: all[5].LeaseID, Limit: 4})
		if err != nil || len(some) != 4 || some[3].EnvironmentID != "catan-1" {
			t.Errorf("of one lease, %+v are listed, %v", some, err)
		}
		return nil
	})
}
