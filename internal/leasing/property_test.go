package leasing_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox/servicetest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox/servicetest/inprocess"
)

// TestWhateverHappensTheLedgerIsTrue lets random things happen to leases and checks after each
// history that what exists is what is leased, that no event is missing, and that usage is
// neither lost nor counted twice.
func TestWhateverHappensTheLedgerIsTrue(t *testing.T) {
	t.Parallel()
	for name, fresh := range databases {
		t.Run(name, func(t *testing.T) { t.Parallel(); keepTheLedgerTrue(t, fresh) })
	}
}

func keepTheLedgerTrue(t *testing.T, fresh func(t *testing.T) string) {
	rapid.Check(t, func(r *rapid.T) {
		h := &history{T: r, env: inprocess.NewOn(fresh)(t), generations: make(map[string]int64)}
		h.begin()
		r.Repeat(map[string]func(*rapid.T){
			"acquire":   func(*rapid.T) { h.acquire() },
			"release":   func(*rapid.T) { h.release() },
			"use":       func(*rapid.T) { h.use() },
			"sleep":     func(*rapid.T) { h.sleep() },
			"condition": func(*rapid.T) { h.condition() },
			"wait":      func(*rapid.T) { h.wait() },
			"vanish":    func(*rapid.T) { h.vanish() },
			"kills":     func(*rapid.T) { h.env.FailKills(rapid.Bool().Draw(r, "fail")) },
			"":          func(*rapid.T) { h.checkGenerations() },
		})
		h.settle()
	})
}

type history struct {
	*rapid.T
	env         servicetest.Env
	started     time.Time
	deliveries  int
	generations map[string]int64
	sandboxes   []string
}

func (h *history) begin() {
	h.started = h.env.Now()
	_, err := h.env.Service.PutEnvironment(h.Context(), sandbox.PutEnvironment{ID: game, Owner: "test", EnvironmentSpec: sandbox.EnvironmentSpec{
		Type: sandbox.TypeRPG, Image: "player", Network: sandbox.NetworkNone, TTL: sandbox.Duration(time.Hour), MaxLifetime: sandbox.Duration(5 * time.Hour)}})
	if err != nil {
		h.Fatal(err)
	}
}

func (h *history) agent() string {
	return fmt.Sprintf("did:plc:a%d", rapid.IntRange(1, 3).Draw(h.T, "agent"))
}

func (h *history) lease() sandbox.LeaseRef {
	return sandbox.LeaseRef{ID: sandbox.LeaseID(h.agent(), game)}
}

// expect fails on an error whose code is not one that the situation allows.
func (h *history) expect(err error, allowed ...sandbox.Code) {
	h.Helper()
	if err == nil {
		return
	}
	for _, c := range allowed {
		if sandbox.CodeOf(err) == c {
			return
		}
	}
	h.Fatalf("%v (%s)", err, sandbox.CodeOf(err))
}

func (h *history) acquire() {
	a, err := h.env.Service.Acquire(h.Context(), sandbox.Acquire{AgentDID: h.agent(), EnvironmentID: game, Owner: "test"})
	h.expect(err, sandbox.EnvironmentEnded)
	if err == nil && a.IsNew {
		h.sandboxes = append(h.sandboxes, a.Lease.SandboxID)
	}
}

func (h *history) release() {
	_, err := h.env.Service.Release(h.Context(), h.lease())
	h.expect(err, sandbox.NotFound, sandbox.Unavailable)
}

func (h *history) use() {
	code := fmt.Sprint(rapid.IntRange(0, 1).Draw(h.T, "exit"))
	_, err := h.env.Service.Exec(h.Context(), h.lease(), sandbox.ExecRequest{Command: []string{"exit", code}})
	h.expect(err, sandbox.NotFound, sandbox.LeaseEnded)
}

func (h *history) sleep() {
	_, err := h.env.Service.Sleep(h.Context(), h.lease())
	h.expect(err, sandbox.NotFound, sandbox.LeaseEnded)
}

func (h *history) condition() {
	h.deliveries++
	c := sandbox.Condition{Type: "agent.death", Timestamp: h.env.Now(), Data: sandbox.ConditionData{EnvironmentID: game, AgentDID: h.agent()}}
	if rapid.IntRange(0, 4).Draw(h.T, "all") == 0 {
		c.Type, c.Data.AgentDID = "game.finished", ""
	}
	id := fmt.Sprint(h.deliveries)
	_, err := h.env.Service.Deliver(h.Context(), sandbox.Delivery{ID: id, Body: []byte(id), Condition: c})
	h.expect(err)
	if c.Type == "game.finished" && rapid.Bool().Draw(h.T, "reopen") {
		_, err := h.env.Service.ReopenEnvironment(h.Context(), game)
		h.expect(err)
	}
}

func (h *history) wait() {
	h.env.Advance(time.Duration(rapid.IntRange(1, 90).Draw(h.T, "minutes")) * time.Minute)
}

func (h *history) vanish() {
	l, err := h.env.Service.GetLease(h.Context(), h.lease().ID)
	h.expect(err, sandbox.NotFound)
	if err == nil {
		h.env.Remove(l.SandboxID)
	}
}

func (h *history) checkGenerations() {
	leases, err := h.env.Service.ListLeases(h.Context(), sandbox.LeaseFilter{})
	h.expect(err)
	for _, l := range leases {
		if l.Generation < h.generations[l.ID] {
			h.Fatalf("%s went back from generation %d to %d", l.ID, h.generations[l.ID], l.Generation)
		}
		h.generations[l.ID] = l.Generation
	}
}

// settle lets every retry come to its end and checks what is true then.
func (h *history) settle() {
	h.env.FailKills(false)
	h.env.Advance(time.Minute)
	active, err := h.env.Service.ListLeases(h.Context(), sandbox.LeaseFilter{Status: sandbox.LeaseActive})
	h.expect(err)
	if n := h.env.Running(); n != len(active) {
		h.Fatalf("%d sandboxes exist and %d are leased", n, len(active))
	}
	for _, status := range []sandbox.LeaseStatus{sandbox.LeasePending, sandbox.LeaseExpired} {
		left, err := h.env.Service.ListLeases(h.Context(), sandbox.LeaseFilter{Status: status})
		h.expect(err)
		if len(left) != 0 {
			h.Fatalf("%s: %+v", status, left)
		}
	}
	for _, id := range h.sandboxes {
		h.checkEvents(id)
	}
	h.checkUsage()
}

func (h *history) checkEvents(sandboxID string) {
	events, err := h.env.Service.ListEvents(h.Context(), sandbox.EventFilter{SandboxID: sandboxID})
	h.expect(err)
	ended, destroyed := 0, 0
	for i, e := range events {
		if e.Sequence != int64(i+1) {
			h.Fatalf("event %d of %s has sequence %d", i, sandboxID, e.Sequence)
		}
		switch e.Type {
		case sandbox.EventEnded:
			ended++
		case sandbox.EventDestroyed:
			destroyed++
		}
	}
	if ended > 1 || destroyed != ended {
		h.Fatalf("%s ended %d times and was destroyed %d times", sandboxID, ended, destroyed)
	}
}

func (h *history) checkUsage() {
	elapsed := h.env.Now().Sub(h.started).Seconds()
	byLease, err := h.env.Service.Costs(h.Context(), sandbox.CostQuery{GroupBy: sandbox.CostByLease})
	h.expect(err)
	byDay, err := h.env.Service.Costs(h.Context(), sandbox.CostQuery{GroupBy: sandbox.CostByDay})
	h.expect(err)
	for _, row := range byLease.Rows {
		// One agent's generations may overlap only while an ended one cannot be destroyed.
		if row.AwakeSeconds+row.AsleepSeconds > elapsed*float64(row.Generations)+1 {
			h.Fatalf("%s was used %.0f s in %.0f s", row.LeaseID, row.AwakeSeconds+row.AsleepSeconds, elapsed)
		}
	}
	same := func(what string, a, b float64) {
		if a-b > 0.001 || b-a > 0.001 {
			h.Fatalf("%s is %f by lease and %f by day", what, a, b)
		}
	}
	same("awake", byLease.Total.AwakeSeconds, byDay.Total.AwakeSeconds)
	same("asleep", byLease.Total.AsleepSeconds, byDay.Total.AsleepSeconds)
	same("cost", float64(byLease.Total.Gross)/1e6, float64(byDay.Total.Gross)/1e6)
}
