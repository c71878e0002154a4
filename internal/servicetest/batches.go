package servicetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var batchTests = []test{
	{"BatchLeasesATable", batchLeasesATable},
	{"BatchSentAgainStartsNothing", batchSentAgainStartsNothing},
	{"BatchItemsReplaceWhatIsCommon", batchItemsReplaceWhatIsCommon},
	{"BatchNamesWrongFields", batchNamesWrongFields},
	{"BatchTellsOfEachItem", batchTellsOfEachItem},
	{"BatchOfAllOrNoneLeasesNone", batchOfAllOrNoneLeasesNone},
	{"BatchStaysWithinTheBudget", batchStaysWithinTheBudget},
	{"BatchNeedNotWait", batchNeedNotWait},
	{"BatchesThatOverlapShareLeases", batchesThatOverlapShareLeases},
}

// tableOf returns a batch of leases for n agents in the game.
func tableOf(n int) sandbox.AcquireBatch {
	b := sandbox.AcquireBatch{EnvironmentID: game, Owner: owner}
	for i := range n {
		b.Items = append(b.Items, sandbox.BatchItem{AgentDID: fmt.Sprintf("did:plc:seat%d", i)})
	}
	return b
}

func (w *world) acquireBatch(b sandbox.AcquireBatch) []sandbox.AcquireResult {
	w.Helper()
	results := must(w.Service.AcquireBatch(w.Context(), b))(w)
	if len(results) != len(b.Items) {
		w.Fatalf("%d results of %d items", len(results), len(b.Items))
	}
	return results
}

func batchLeasesATable(w *world) {
	w.environment()
	for i, r := range w.acquireBatch(tableOf(sandbox.MaxBatch)) {
		if r.Err != nil || !r.IsNew || r.Lease.AgentDID != fmt.Sprintf("did:plc:seat%d", i) || r.Lease.Owner != owner {
			w.Errorf("item %d got %+v", i, r)
		}
		w.wantLease(r.Lease, 1, sandbox.LeaseActive, "")
	}
	if n := w.Running(); n != sandbox.MaxBatch {
		w.Errorf("%d sandboxes run", n)
	}
}

func batchSentAgainStartsNothing(w *world) {
	w.environment()
	for _, whole := range []bool{false, true} {
		b := tableOf(4)
		b.AllOrNone = whole
		first := w.acquireBatch(b)
		for i, r := range w.acquireBatch(b) {
			if r.Err != nil || r.IsNew || r.Lease.SandboxID != first[i].Lease.SandboxID {
				w.Errorf("item %d was %+v and is %+v", i, first[i], r)
			}
		}
	}
	if n := w.Running(); n != 4 {
		w.Errorf("%d sandboxes run", n)
	}
}

func batchItemsReplaceWhatIsCommon(w *world) {
	w.environment()
	w.environment(func(p *sandbox.PutEnvironment) { p.ID = "rpg-1" })
	hour, day := sandbox.Duration(time.Hour), sandbox.Duration(24*time.Hour)
	got := w.acquireBatch(sandbox.AcquireBatch{
		EnvironmentID: game, Owner: owner, Settings: sandbox.LeaseSettings{TTL: &hour, MaxLifetime: &day},
		Items: []sandbox.BatchItem{
			{AgentDID: ann},
			{
				AgentDID:      bob,
				EnvironmentID: "rpg-1",
				Owner:         "gm",
				Settings:      sandbox.LeaseSettings{TTL: &day, ExpiryConditions: []string{"game.won"}},
			},
		}})
	a, b := got[0].Lease, got[1].Lease
	if a.EnvironmentID != game || a.Owner != owner || a.TTL != hour || a.MaxLifetime != day {
		w.Errorf("the common settings gave %+v", a)
	}
	if b.EnvironmentID != "rpg-1" || b.Owner != "gm" || b.TTL != day || b.MaxLifetime != day ||
		len(b.ExpiryConditions) != 1 {
		w.Errorf("an item's own gave %+v", b)
	}
}

func batchNamesWrongFields(w *world) {
	w.environment()
	refused := func(b sandbox.AcquireBatch, fields ...string) {
		w.Helper()
		_, err := w.Service.AcquireBatch(w.Context(), b)
		w.wantError(err, sandbox.Invalid, "", fields...)
	}
	refused(tableOf(0), "items")
	refused(tableOf(sandbox.MaxBatch+1), "items")
	short := sandbox.Duration(time.Millisecond)
	refused(sandbox.AcquireBatch{Items: []sandbox.BatchItem{
		{AgentDID: ann, EnvironmentID: game}, {AgentDID: "bob"},
		{AgentDID: bob, EnvironmentID: game, Settings: sandbox.LeaseSettings{TTL: &short}},
		{AgentDID: ann, EnvironmentID: game},
	}}, "items[1].agent_did", "items[1].environment_id", "items[2].settings.ttl", "items[3]")
	if n := w.Running(); n != 0 {
		w.Errorf("%d sandboxes run of batches that were refused", n)
	}
}

func batchTellsOfEachItem(w *world) {
	w.environment()
	w.environment(func(p *sandbox.PutEnvironment) { p.ID = "over" })
	w.Advance(time.Second)
	w.deliver("game.finished", func(c *sandbox.Condition) { c.Data.EnvironmentID = "over" })
	must(w.Service.Acquire(w.Context(), sandbox.Acquire{AgentDID: bob, EnvironmentID: game, Owner: "another"}))(w)
	got := w.acquireBatch(sandbox.AcquireBatch{EnvironmentID: game, Owner: owner, Items: []sandbox.BatchItem{
		{AgentDID: ann, EnvironmentID: "no-such-game"}, {AgentDID: ann}, {AgentDID: ann, EnvironmentID: "over"},
		{AgentDID: bob}, {AgentDID: "did:plc:cleo"},
	}})
	w.wantError(got[0].Err, sandbox.NotFound, "")
	w.wantError(got[2].Err, sandbox.EnvironmentEnded, "")
	w.wantError(got[3].Err, sandbox.Conflict, sandbox.ReasonOtherOwner)
	for _, i := range []int{1, 4} {
		if got[i].Err != nil {
			w.Errorf("item %d: %v", i, got[i].Err)
		}
		w.wantLease(got[i].Lease, 1, sandbox.LeaseActive, "")
	}
	if n := w.Running(); n != 3 {
		w.Errorf("%d sandboxes run", n)
	}
}

func batchOfAllOrNoneLeasesNone(w *world) {
	w.environment()
	must(w.Service.Acquire(w.Context(), sandbox.Acquire{AgentDID: bob, EnvironmentID: game, Owner: "another"}))(w)
	b := tableOf(3)
	b.AllOrNone = true
	b.Items = append(b.Items, sandbox.BatchItem{AgentDID: bob})
	_, err := w.Service.AcquireBatch(w.Context(), b)
	w.wantError(err, sandbox.Conflict, sandbox.ReasonOtherOwner, "items[3]")
	ttl := sandbox.Duration(time.Hour)
	b.Items[3] = sandbox.BatchItem{AgentDID: bob, Owner: "another", Settings: sandbox.LeaseSettings{TTL: &ttl}}
	_, err = w.Service.AcquireBatch(w.Context(), b)
	w.wantError(err, sandbox.Conflict, sandbox.ReasonOtherSettings, "items[3]", "items[3].settings.ttl")
	for _, item := range b.Items[:3] {
		_, err := w.Service.GetLease(w.Context(), sandbox.LeaseID(item.AgentDID, game))
		w.wantError(err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	}
	b.Items[3].Settings = sandbox.LeaseSettings{}
	for i, r := range w.acquireBatch(b) {
		if isNew := i < 3; r.Err != nil || r.IsNew != isNew || r.Lease.Generation != 1 {
			w.Errorf("once all can be had, item %d is %+v", i, r)
		}
	}
	if n := w.Running(); n != 4 {
		w.Errorf("%d sandboxes run", n)
	}
}

func batchStaysWithinTheBudget(w *world) {
	const hour = basicHour + 4_500_000 // as in budgetGrantsWhatItCovers
	w.environment(withBudget(3*hour + hour/2))
	b := tableOf(5)
	b.AllOrNone = true
	_, err := w.Service.AcquireBatch(w.Context(), b)
	w.wantError(err, sandbox.BudgetExceeded, "", "items[3]")
	if n := w.Running(); n != 0 {
		w.Errorf("%d sandboxes run of a batch that the budget does not cover", n)
	}
	b.AllOrNone = false
	for i, r := range w.acquireBatch(b) {
		if i < 3 && r.Err != nil {
			w.Errorf("item %d, which the budget covers: %v", i, r.Err)
		}
		if i >= 3 {
			w.wantError(r.Err, sandbox.BudgetExceeded, "")
		}
	}
	if n := w.Running(); n != 3 {
		w.Errorf("%d sandboxes run", n)
	}
}

func batchNeedNotWait(w *world) {
	w.environment()
	w.HoldSpawns(true)
	b := tableOf(3)
	b.NoWait = true
	first := w.acquireBatch(b)
	for i, r := range first {
		if r.Err != nil || !r.IsNew {
			w.Errorf("item %d is %+v", i, r)
		}
		w.wantLease(r.Lease, 1, sandbox.LeasePending, "")
	}
	w.HoldSpawns(false)
	b.NoWait = false
	for i, r := range w.acquireBatch(b) {
		if r.Err != nil || r.IsNew || r.Lease.SandboxID != first[i].Lease.SandboxID {
			w.Errorf("item %d was %+v and is %+v", i, first[i], r)
		}
		w.wantLease(r.Lease, 1, sandbox.LeaseActive, "")
	}
}

func batchesThatOverlapShareLeases(w *world) {
	w.environment()
	const agents, callers = 12, 16
	var (
		calls sync.WaitGroup
		mu    sync.Mutex
		boxes = map[string]string{}
		begun int
	)
	for c := range callers {
		calls.Go(func() {
			b := sandbox.AcquireBatch{EnvironmentID: game, Owner: owner, AllOrNone: c%2 == 0}
			for i := range agents / 2 { // each caller in its own order
				b.Items = append(b.Items, sandbox.BatchItem{AgentDID: fmt.Sprintf("did:plc:seat%d", (c*5+i*7)%agents)})
			}
			results, err := w.Service.AcquireBatch(w.Context(), b)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				w.Error(err)
			}
			for _, r := range results {
				if other := boxes[r.Lease.ID]; r.Err != nil || r.Lease.Status != sandbox.LeaseActive ||
					other != "" && other != r.Lease.SandboxID {
					w.Errorf("%+v (another caller got %q)", r, other)
				}
				boxes[r.Lease.ID] = r.Lease.SandboxID
				if r.IsNew {
					begun++
				}
			}
		})
	}
	calls.Wait()
	if begun != len(boxes) || w.Running() != len(boxes) {
		w.Errorf("%d leases were new and %d sandboxes run, of %d leases", begun, w.Running(), len(boxes))
	}
}
