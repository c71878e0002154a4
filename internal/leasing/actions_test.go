package leasing_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// everything has all actions of a history.
var everything = map[string]func(*machine){
	"acquire":    (*machine).acquire,
	"again":      (*machine).acquire, // twice as often as the rest
	"batch":      (*machine).batch,
	"renew":      (*machine).renew,
	"release":    (*machine).release,
	"use":        (*machine).use,
	"detach":     (*machine).detach,
	"cancel":     (*machine).cancel,
	"sleep":      (*machine).sleep,
	"wake":       (*machine).wake,
	"outdated":   (*machine).outdated,
	"condition":  (*machine).condition,
	"reopen":     (*machine).reopen,
	"tick":       (*machine).tick,
	"idle":       (*machine).idle,
	"pool":       (*machine).pool,
	"sweep":      (*machine).sweep,
	"rollUp":     (*machine).rollUp,
	"burn":       (*machine).burn,
	"vanish":     (*machine).vanish,
	"stop":       (*machine).stop,
	"plant":      (*machine).plant,
	"crash":      (*machine).crash,
	"fail":       (*machine).fail,
	"cutOff":     (*machine).cutOff,
	"part":       (*machine).cutOff, // finds most faults
	"heal":       (*machine).heal,
	"stepClock":  (*machine).stepClock,
	"hang":       (*machine).hang,
	"disconnect": (*machine).disconnect,
}

func (m *machine) acquire() {
	a := sandbox.Acquire{
		AgentDID:      m.agent(),
		EnvironmentID: m.game(),
		Owner:         "test",
		NoWait:        rapid.Bool().Draw(m.T, "at once"),
	}
	id := sandbox.LeaseID(a.AgentDID, a.EnvironmentID)
	before, began := m.shown(id), m.now()
	m.Logf("acquire %s (at once: %v)", id, a.NoWait)
	var got sandbox.Acquired
	err := m.call(func(ctx context.Context) (err error) {
		got, err = m.at.engine.Acquire(ctx, a)
		return err
	}, sandbox.EnvironmentEnded, sandbox.BudgetExceeded)
	if err != nil {
		return
	}
	living := before != nil && (before.Status == sandbox.LeasePending || before.Status == sandbox.LeaseActive)
	switch {
	case got.IsNew && living && m.now().Equal(began):
		m.Fatalf("%s was %s in generation %d, and generation %d began",
			id, before.Status, before.Generation, got.Lease.Generation)
	case !got.IsNew && (before == nil || got.Lease.Generation == before.Generation && !living):
		m.Fatalf("%s did not live, and is said to be known in generation %d", id, got.Lease.Generation)
	}
	if got.IsNew && a.EnvironmentID == budgetedGame && m.now().Equal(began) {
		m.checkBudget()
	}
}

// batch acquires the leases of several agents of a game, one by one or all-or-none.
func (m *machine) batch() {
	b := sandbox.AcquireBatch{EnvironmentID: m.game(), Owner: "test",
		NoWait: rapid.Bool().Draw(m.T, "at once"), AllOrNone: rapid.Bool().Draw(m.T, "all or none")}
	for i := range rapid.IntRange(1, 3).Draw(m.T, "items") {
		b.Items = append(b.Items, sandbox.BatchItem{AgentDID: fmt.Sprintf("did:plc:a%d", 3-i)})
	}
	began := m.now()
	m.Logf("acquire a batch of %d in %s (at once: %v, all or none: %v)",
		len(b.Items), b.EnvironmentID, b.NoWait, b.AllOrNone)
	var got []sandbox.AcquireResult
	err := m.call(func(ctx context.Context) (err error) {
		got, err = m.at.engine.AcquireBatch(ctx, b)
		return err
	}, sandbox.EnvironmentEnded, sandbox.BudgetExceeded)
	begun := false
	for i := range got {
		begun = begun || got[i].IsNew
		if got[i].Err != nil && b.AllOrNone {
			m.Fatalf("item %d of all or none failed by itself: %v", i, got[i].Err)
		}
	}
	if err == nil && begun && b.EnvironmentID == budgetedGame && m.now().Equal(began) {
		m.checkBudget()
	}
}

// checkBudget checks the budget after an acquire. It sums the month's cost so far, and the cost of the live leases if
// they are awake and busy until they expire.
func (m *machine) checkBudget() {
	at := m.now()
	month := time.Date(at.UTC().Year(), at.UTC().Month(), 1, 0, 0, 0, 0, time.UTC)
	spent, err := m.at.engine.Costs(m.Context(),
		sandbox.CostQuery{EnvironmentID: budgetedGame, From: month, To: month.AddDate(0, 1, 0)})
	if err != nil {
		m.Fatal(err)
	}
	leases, err := m.at.engine.ListLeases(m.Context(), sandbox.LeaseFilter{EnvironmentID: budgetedGame})
	if err != nil {
		m.Fatal(err)
	}
	sum := sandbox.CostRow{}
	sum.Gross = spent.Total.Gross
	adder := &bill{now: at, books: map[string]sandbox.PriceBook{"": m.host.book}}
	for _, l := range leases {
		if l.Status != sandbox.LeasePending && l.Status != sandbox.LeaseActive ||
			l.ExpiresAt.UTC().Month() != at.UTC().Month() {
			continue
		}
		left := micro.SpanOf(sandbox.Duration(l.ExpiresAt.Sub(at)))
		adder.addUp(&sum, &accounting.UsagePeriod{
			State:     sandbox.PhaseAwake,
			StartedAt: micro.At(at),
			EndedAt:   micro.At(l.ExpiresAt),
			MemoryMB:  l.Resources.MemoryMB,
			DiskMB:    l.Resources.DiskMB,
			CPU:       left * micro.Span(l.Resources.CPUMillis) / 1000,
		}, sandbox.CostQuery{})
	}
	if budget := m.env[budgetedGame].Budget.Monthly + sandbox.NanoUSD(len(leases)); sum.Gross > budget { // each is rounded
		m.Fatalf("a lease was granted, and the budget of $%s may cost $%s", budget, sum.Gross)
	}
}

func (m *machine) renew() {
	r := m.lease()
	before, began := m.shown(r.ID), m.now()
	m.Logf("renew %s", r)
	err := m.call(func(ctx context.Context) error {
		_, err := m.at.engine.Renew(ctx, sandbox.Renew{LeaseRef: r})
		return err
	}, sandbox.NotFound, sandbox.LeaseEnded)
	ended := before == nil || before.Status == sandbox.LeaseExpired || before.Status == sandbox.LeaseDestroyed
	if (err == nil) == ended && m.now().Equal(began) && m.at.alive() && !sandbox.IsRetryable(err) {
		m.Fatalf("%s had ended: %v, and renewing it ended with %v", r, ended, sandbox.CodeOf(err))
	}
}

func (m *machine) release() {
	r := m.lease()
	m.Logf("release %s", r)
	_ = m.call(func(ctx context.Context) error {
		_, err := m.at.engine.Release(ctx, r)
		return err
	}, sandbox.NotFound)
}

func (m *machine) use() {
	r := m.lease()
	code := fmt.Sprint(rapid.IntRange(0, 1).Draw(m.T, "exit"))
	m.Logf("exec in %s", r)
	_ = m.call(func(ctx context.Context) error {
		_, err := m.at.engine.Exec(ctx, r, sandbox.ExecRequest{Command: []string{"exit", code}})
		return err
	}, sandbox.NotFound, sandbox.LeaseEnded, sandbox.Conflict)
}

// detach starts a command that may outlive its reconciler, its sandbox's sleep and its lease.
func (m *machine) detach() {
	r := m.lease()
	req := sandbox.ExecRequest{
		Command: []string{"sleep", fmt.Sprintf("%ds", rapid.IntRange(0, 100).Draw(m.T, "seconds")), "done"},
	}
	if rapid.Bool().Draw(m.T, "named") {
		req.ID = m.issue(sandbox.SandboxIDLength)
	}
	m.Logf("start %v in %s", req.Command, r)
	var x sandbox.Exec
	err := m.call(func(ctx context.Context) (err error) {
		x, err = m.at.engine.StartExec(ctx, r, req)
		return err
	}, sandbox.NotFound, sandbox.LeaseEnded, sandbox.Conflict)
	if err == nil {
		m.known.commands = append(m.known.commands, sandbox.ExecRef{LeaseID: r.ID, ID: x.ID})
	}
}

func (m *machine) cancel() {
	if len(m.known.commands) == 0 {
		m.Skip()
	}
	i := rapid.IntRange(0, len(m.known.commands)-1).Draw(m.T, "command")
	m.Logf("cancel command %d", i)
	var x sandbox.Exec
	err := m.call(func(ctx context.Context) (err error) {
		x, err = m.at.engine.CancelExec(ctx, m.known.commands[i])
		return err
	}, sandbox.Conflict)
	if err == nil && x.State == sandbox.ExecRunning {
		m.Fatal("a command that was cancelled runs")
	}
}

func (m *machine) sleep() {
	r := m.lease()
	m.Logf("put %s to sleep", r)
	_ = m.call(func(ctx context.Context) error {
		_, err := m.at.engine.Sleep(ctx, r)
		return err
	}, sandbox.NotFound, sandbox.LeaseEnded, sandbox.Conflict) // a command may be running
}

func (m *machine) wake() {
	r := m.lease()
	m.Logf("wake %s", r)
	_ = m.call(func(ctx context.Context) error {
		_, err := m.at.engine.Wake(ctx, r)
		return err
	}, sandbox.NotFound, sandbox.LeaseEnded)
}

// outdated sends a request for a generation other than the current one.
func (m *machine) outdated() {
	r := m.lease()
	before := m.shown(r.ID)
	if before == nil {
		m.Skip()
	}
	r.Generation = before.Generation + int64(rapid.SampledFrom([]int{-1, 1, 7}).Draw(m.T, "generation"))
	if r.Generation == 0 {
		m.Skip()
	}
	m.Logf("ask %s for everything", r)
	requests := []func(ctx context.Context) error{
		func(ctx context.Context) error {
			_, err := m.at.engine.Renew(ctx, sandbox.Renew{LeaseRef: r})
			return err
		},
		func(ctx context.Context) error { _, err := m.at.engine.Release(ctx, r); return err },
		func(ctx context.Context) error { _, err := m.at.engine.Sleep(ctx, r); return err },
		func(ctx context.Context) error { _, err := m.at.engine.Wake(ctx, r); return err },
		func(ctx context.Context) error {
			_, err := m.at.engine.Exec(ctx, r, sandbox.ExecRequest{Command: []string{"exit", "0"}})
			return err
		},
	}
	for i, ask := range requests {
		if err := ask(m.Context()); sandbox.ReasonOf(err) != sandbox.ReasonOtherGeneration {
			m.Fatalf("request %d for another generation returned %v", i, err)
		}
	}
	after, err := m.at.engine.GetLease(m.Context(), r.ID)
	if err != nil || after.LastSequence != before.LastSequence || after.LastActivity != before.LastActivity {
		m.Fatalf("requests for another generation changed the lease: %v", err)
	}
}

func (m *machine) condition() {
	c := sandbox.Condition{Timestamp: m.now(), Data: sandbox.ConditionData{EnvironmentID: m.game()}}
	switch rapid.IntRange(0, 5).Draw(m.T, "kind") {
	case 0, 1, 2:
		c.Type, c.Data.AgentDID = "agent.death", m.agent()
	case 3, 4:
		c.Type, c.Data.AgentDID = "agent.death", m.agent()
		c.Data.Generation = int64(rapid.IntRange(1, 3).Draw(m.T, "generation"))
	default:
		c.Type = "game.finished"
	}
	if ago := rapid.IntRange(-4, 120).Draw(m.T, "minutes ago"); ago != 0 {
		c.Timestamp = c.Timestamp.Add(-time.Duration(ago) * time.Minute)
	}
	d := sandbox.Delivery{ID: fmt.Sprintf("m-%d", len(m.known.sent)), Source: "test", Condition: c}
	d.Body = []byte(d.ID)
	m.known.sent[d.ID] = c
	m.Logf("%s of %s, %s generation %d", c.Type, c.Timestamp.Sub(m.now()), c.Data.AgentDID, c.Data.Generation)
	if err := m.call(func(ctx context.Context) error {
		_, err := m.at.engine.Deliver(ctx, d)
		return err
	}); err == nil {
		m.acknowledged = append(m.acknowledged, d)
	}
}

func (m *machine) reopen() {
	id := m.game()
	m.Logf("reopen %s", id)
	_ = m.call(func(ctx context.Context) error {
		_, err := m.at.engine.ReopenEnvironment(ctx, id)
		return err
	})
}

func (m *machine) tick() {
	d := time.Duration(rapid.IntRange(1, 300).Draw(m.T, "seconds")) * time.Second
	m.Logf("%s pass", d)
	m.pass(d)
}

func (m *machine) idle() {
	d := time.Duration(rapid.IntRange(6, 80).Draw(m.T, "minutes")) * time.Minute
	m.Logf("%s pass", d)
	m.pass(d)
}

func (m *machine) pool() {
	p := m.env[pooledGame]
	size := rapid.IntRange(-1, 2).Draw(m.T, "size")
	p.WarmPool = nil
	if size >= 0 {
		p.WarmPool = &sandbox.WarmPool{Size: int64(size), TTL: sandbox.Duration(2 * time.Hour)}
	}
	p.Image = rapid.SampledFrom([]string{"player", "player:2"}).Draw(m.T, "image")
	m.Logf("a pool of %d of %s", size, p.Image)
	m.put(p)
}

func (m *machine) sweep() {
	r := sandbox.SweepRequest{DryRun: rapid.Bool().Draw(m.T, "dry")}
	m.Logf("sweep (dry: %v)", r.DryRun)
	_ = m.call(func(ctx context.Context) error {
		_, err := m.at.engine.Sweep(ctx, r)
		return err
	})
}

func (m *machine) rollUp() {
	m.Log("roll up")
	_ = m.call(m.at.engine.RollUp)
}

func (m *machine) burn() {
	if id := m.existing(); id != "" {
		m.host.backend.Burn(id, time.Duration(rapid.IntRange(1, 1000).Draw(m.T, "ms"))*time.Millisecond)
	}
}

// existing draws an existing sandbox, "" if there is none.
func (m *machine) existing() string {
	if len(m.known.before.boxes) == 0 {
		return ""
	}
	return rapid.SampledFrom(sorted(m.known.before.boxes)).Draw(m.T, "sandbox")
}

func (m *machine) vanish() {
	id := m.existing()
	if id == "" {
		m.Skip()
	}
	m.Logf("somebody removes %s", m.known.before.name(id))
	m.orphan(id)
	m.host.backend.Remove(id)
	m.rest()
}

func (m *machine) stop() {
	id := m.existing()
	if id == "" {
		m.Skip()
	}
	m.Logf("%s runs out of memory", m.known.before.name(id))
	m.host.backend.Change(id, func(o *driver.Observation) {
		o.State, o.ExitCode, o.OOMKilled, o.StoppedAt = sandbox.StateStopped, 137, true, m.now()
	})
	m.rest()
}

// plant creates a sandbox with the ledger's label and no row. A ledger that never had a sandbox would not judge it.
func (m *machine) plant() {
	if len(m.known.before.rows) == 0 {
		m.Skip()
	}
	id := m.issue(sandbox.SandboxIDLength)
	m.Log("somebody makes a sandbox of ours")
	m.orphan(id)
	m.host.backend.Plant(driver.SandboxSpec{Handle: driver.Handle{LedgerID: m.at.store.ID(), EnvironmentID: pooledGame,
		SandboxID: id, Instance: "engine-1"}, Image: "player"})
}

func (m *machine) crash() {
	m.Log("the reconciler is killed")
	m.at.die()
	m.rest()
}

var operations = []fake.Op{
	fake.OpSpawn, fake.OpKill, fake.OpSleep, fake.OpWake, fake.OpAssign, fake.OpExec, fake.OpFollow, fake.OpEndExec,
	fake.OpInspect, fake.OpList,
}

func (m *machine) arm(calls int, kinds ...fault) {
	op := rapid.SampledFrom(operations).Draw(m.T, "op")
	kind := rapid.SampledFrom(kinds).Draw(m.T, "fault")
	m.Logf("the next %d of %s: %s", calls, op, kind)
	m.host.faults.arm(op, kind, calls)
}

func (m *machine) fail() {
	m.arm(rapid.IntRange(1, 5).Draw(m.T, "calls"), refused, lost, broken)
}

// cutOff makes the reconciler die or freeze at its next call of an operation.
func (m *machine) cutOff() { m.arm(1, dies, diesDone, freezes, frozen) }

func (m *machine) hang() { m.arm(1, hung, late, slow) }

func (m *machine) disconnect() {
	m.Log("the backend's connection breaks")
	m.host.backend.Disconnect()
	m.rest()
}

// heal ends all faults, and lets the calls of frozen reconcilers arrive.
func (m *machine) heal() {
	m.Log("heal")
	m.host.faults.heal()
	for _, p := range m.frozen {
		p.awaitGone()
	}
	m.frozen = nil
	m.pass(noticeEvery)
}

func (m *machine) stepClock() {
	d := time.Duration(rapid.IntRange(-600, 600).Draw(m.T, "minutes")) * time.Minute
	m.Logf("the clock is set by %s", d)
	m.clock.step(d)
	if err := m.at.engine.Ready(m.Context()); err != nil && !errors.Is(err, context.Canceled) {
		m.Fatal(err)
	}
	m.rest()
}
