package servicetest

import (
	"slices"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var conditionTests = []test{
	{"ConditionEndsOneAgentsLease", conditionEndsOneAgentsLease},
	{"ConditionEndsAGame", conditionEndsAGame},
	{"AgentConditionNeedsAnAgent", agentConditionNeedsAnAgent},
	{"ConditionNamesWrongFields", conditionNamesWrongFields},
	{"DuplicateDeliveryChangesNothing", duplicateDeliveryChangesNothing},
	{"IDIsNotUsedForAnotherBody", idIsNotUsedForAnotherBody},
	{"IDIsFreeForOtherEnvironments", idIsFreeForOtherEnvironments},
	{"UnmatchedConditionIsKept", unmatchedConditionIsKept},
	{"MisspelledConditionIsAnsweredWithAHint", misspelledConditionIsAnsweredWithAHint},
	{"ReceiptSaysWhyNothingEnded", receiptSaysWhyNothingEnded},
	{"DeliveriesAreListedWithWhatTheyDid", deliveriesAreListedWithWhatTheyDid},
	{"LateConditionDoesNotEndTheNextLife", lateConditionDoesNotEndTheNextLife},
	{"ConditionOfTheMomentOfALeaseIsOfTheLifeBefore", conditionOfTheMomentOfALease},
	{"ConditionForAGeneration", conditionForAGeneration},
	{"EndedEnvironmentIsReopened", endedEnvironmentIsReopened},
	{"HigherEpochReopens", higherEpochReopens},
	{"HigherEpochOutlivesTheEndOfTheGameBefore", higherEpochOutlivesTheEndOfTheGameBefore},
}

func conditionEndsOneAgentsLease(w *world) {
	w.environment(rpg)
	w.acquire(ann)
	w.acquire(bob)
	w.Advance(time.Second)
	w.wantReceipt(w.deliver("agent.death", of(ann), func(c *sandbox.Condition) { c.Data.Reason = "a dragon" }),
		sandbox.DeliveryApplied, 1)
	w.wantLease(w.lease(bob), 1, sandbox.LeaseActive, "")
	if l := w.lease(ann); l.Status != sandbox.LeaseExpired || l.EndedBy != sandbox.EndedByCondition ||
		l.EndReason != "agent.death: a dragon" {
		w.Errorf("ann's lease is %s, ended by %s: %s", l.Status, l.EndedBy, l.EndReason)
	}
	w.Advance(time.Second)
	w.wantLease(w.lease(ann), 1, sandbox.LeaseDestroyed, sandbox.EndedByCondition)
	if n := w.Running(); n != 1 {
		w.Errorf("%d sandboxes run, want bob's", n)
	}
	w.wantLease(w.acquire(ann), 2, sandbox.LeaseActive, "") // one death does not end the game
}

func conditionEndsAGame(w *world) {
	w.environment()
	w.acquire(ann)
	own := []string{"game.won"}
	must(w.Service.Acquire(w.Context(), sandbox.Acquire{AgentDID: bob, EnvironmentID: game, Owner: owner,
		Settings: sandbox.LeaseSettings{ExpiryConditions: own}}))(w)
	w.Advance(time.Second)
	w.wantReceipt(w.deliver("game.finished"), sandbox.DeliveryApplied, 1)
	w.Advance(time.Second)
	w.wantLease(w.lease(ann), 1, sandbox.LeaseDestroyed, sandbox.EndedByCondition)
	w.wantLease(w.lease(bob), 1, sandbox.LeaseActive, "") // its own conditions do not contain it
	_, err := w.Service.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: owner})
	w.wantError(err, sandbox.EnvironmentEnded, "")
	e := must(w.Service.GetEnvironment(w.Context(), game))(w)
	if e.Status != sandbox.EnvironmentClosed || e.EndedBy != "game.finished" || e.EndedAt.IsZero() {
		w.Errorf("the environment is %s, ended by %q at %v", e.Status, e.EndedBy, e.EndedAt)
	}
}

func agentConditionNeedsAnAgent(w *world) {
	w.environment(rpg)
	w.acquire(ann)
	w.Advance(time.Second)
	_, err := w.Service.Deliver(w.Context(), w.delivery("m", "agent.death"))
	w.wantError(err, sandbox.Invalid, "", "data.agent_did")
	w.Advance(time.Second)
	w.wantLease(w.lease(ann), 1, sandbox.LeaseActive, "")
}

func conditionNamesWrongFields(w *world) {
	w.environment()
	w.acquire(ann)
	_, err := w.Service.Deliver(w.Context(), w.delivery("m", "finished", at(time.Time{}), func(c *sandbox.Condition) {
		c.Data.EnvironmentID, c.Data.Generation = "No Such", 1
	}))
	w.wantError(err, sandbox.Invalid, "", "type", "timestamp", "data.environment_id", "data.generation")
	_, err = w.Service.Deliver(w.Context(), w.delivery("n", "game.finished", at(w.Now().Add(time.Hour))))
	w.wantError(err, sandbox.Invalid, "", "timestamp")
	w.wantLease(w.lease(ann), 1, sandbox.LeaseActive, "")
}

func duplicateDeliveryChangesNothing(w *world) {
	w.environment(rpg)
	w.acquire(ann)
	w.Advance(time.Second)
	d := w.delivery("death-1", "agent.death", of(ann))
	w.wantReceipt(must(w.Service.Deliver(w.Context(), d))(w), sandbox.DeliveryApplied, 1)
	w.Advance(time.Second)
	w.wantLease(w.acquire(ann), 2, sandbox.LeaseActive, "")
	w.Advance(time.Second)
	want := sandbox.Receipt{ID: "death-1", Status: sandbox.DeliveryApplied, Duplicate: true, Matched: 1}
	if again := must(w.Service.Deliver(w.Context(), d))(w); again != want {
		w.Errorf("the second receipt is %+v, want %+v", again, want)
	}
	w.wantLease(w.lease(ann), 2, sandbox.LeaseActive, "")
}

func idIsNotUsedForAnotherBody(w *world) {
	w.environment(rpg)
	w.acquire(ann)
	w.acquire(bob)
	w.Advance(time.Second)
	must(w.Service.Deliver(w.Context(), w.delivery("death-1", "agent.death", of(ann))))(w)
	_, err := w.Service.Deliver(w.Context(), w.delivery("death-1", "agent.death", of(bob)))
	w.wantError(err, sandbox.Conflict, sandbox.ReasonOtherBody)
	w.wantLease(w.lease(bob), 1, sandbox.LeaseActive, "")
}

// idIsFreeForOtherEnvironments: game servers that do not know each other may choose the same ids. Otherwise one could
// keep the conditions of another from ending sandboxes.
func idIsFreeForOtherEnvironments(w *world) {
	w.environment(rpg)
	w.acquire(ann)
	w.Advance(time.Second)
	other := w.delivery("death-1", "agent.death", of(ann), func(c *sandbox.Condition) { c.Data.EnvironmentID = "a.game" })
	own := w.delivery("death-1", "agent.death", of(ann))
	w.wantReceipt(must(w.Service.Deliver(w.Context(), other))(w), sandbox.DeliveryUnmatched, 0)
	w.wantReceipt(must(w.Service.Deliver(w.Context(), own))(w), sandbox.DeliveryApplied, 1)
	for _, c := range []struct {
		again sandbox.Delivery
		want  sandbox.DeliveryStatus
	}{{other, sandbox.DeliveryUnmatched}, {own, sandbox.DeliveryApplied}} {
		if got := must(w.Service.Deliver(w.Context(), c.again))(w); !got.Duplicate || got.Status != c.want {
			w.Errorf("the repeated receipt is %+v, want %s", got, c.want)
		}
	}
	var of []string
	for before := ""; len(of) < 9; {
		page := must(w.Service.ListDeliveries(w.Context(),
			sandbox.DeliveryFilter{ID: "death-1", Before: before, Limit: 1}))(w)
		if len(page) == 0 {
			break
		}
		of, before = append(of, page[0].EnvironmentID), page[0].Cursor()
	}
	slices.Sort(of)
	if !slices.Equal(of, []string{"a.game", game}) {
		w.Errorf("the pages have the messages of %q", of)
	}
}

func unmatchedConditionIsKept(w *world) {
	w.environment()
	w.acquire(ann)
	w.Advance(time.Second)
	w.wantReceipt(w.deliver("game.finished", func(c *sandbox.Condition) { c.Data.EnvironmentID = "nowhere" }),
		sandbox.DeliveryUnmatched, 0)
	w.wantReceipt(w.deliver("game.paused"), sandbox.DeliveryUnmatched, 0)
	w.wantReceipt(w.deliver("game.finished", of(bob)), sandbox.DeliveryUnmatched, 0)
	w.wantLease(w.lease(ann), 1, sandbox.LeaseActive, "")
	events := must(w.Service.ListEvents(w.Context(), sandbox.EventFilter{EnvironmentID: "nowhere"}))(w)
	if len(events) != 1 || events[0].Type != sandbox.EventConditionUnmatched || events[0].EnvironmentID != "nowhere" {
		w.Errorf("the events of nowhere are %+v", events)
	}
}

// misspelledConditionIsAnsweredWithAHint: the answer, the event and the list name the condition that was probably
// meant. No lease ends.
func misspelledConditionIsAnsweredWithAHint(w *world) {
	w.environment(rpg)
	w.acquire(ann)
	w.Advance(time.Second)
	d := w.delivery("dead-1", "agent.dead", of(ann))
	want := sandbox.Receipt{ID: "dead-1", Status: sandbox.DeliveryUnmatched, Reason: sandbox.DeliveryNoCondition,
		DidYouMean: "agent.death"}
	if got := must(w.Service.Deliver(w.Context(), d))(w); got != want {
		w.Errorf("the receipt is %+v, want %+v", got, want)
	}
	want.Duplicate = true
	if got := must(w.Service.Deliver(w.Context(), d))(w); got != want {
		w.Errorf("the second receipt is %+v, want %+v", got, want)
	}
	for kind, meant := range map[string]string{"game.finish": "game.finished", "game.paused": "", "campaign.end": "campaign.ended"} {
		if got := w.deliver(kind); got.Status != sandbox.DeliveryUnmatched || got.DidYouMean != meant {
			w.Errorf("the receipt of %s is %+v, want %q", kind, got, meant)
		}
	}
	if got := w.deliver("agent.deaht", of(bob)); got.DidYouMean != "agent.death" { // bob has no lease
		w.Errorf("the receipt for an agent without a lease is %+v", got)
	}
	w.wantLease(w.lease(ann), 1, sandbox.LeaseActive, "")
	listed := must(w.Service.ListDeliveries(w.Context(), sandbox.DeliveryFilter{ID: "dead-1"}))(w)
	if len(listed) != 1 || listed[0].DidYouMean != "agent.death" {
		w.Errorf("the list has %+v", listed)
	}
	events := must(w.Service.ListEvents(w.Context(),
		sandbox.EventFilter{EnvironmentID: game, Type: string(sandbox.EventConditionUnmatched)}))(w)
	if len(events) == 0 || !strings.Contains(string(events[0].Data), `"did_you_mean":"agent.death"`) {
		w.Errorf("the events are %+v", events)
	}
}

// receiptSaysWhyNothingEnded: if a condition ended nothing, the sender reads why in the receipt, its repetition and the
// list.
func receiptSaysWhyNothingEnded(w *world) {
	w.environment(rpg)
	w.acquire(ann)
	w.Advance(time.Second)
	generation := func(n int64) func(c *sandbox.Condition) {
		return func(c *sandbox.Condition) { c.Data.Generation = n }
	}
	elsewhere := func(c *sandbox.Condition) { c.Data.EnvironmentID = "nowhere" }
	wants := func(status sandbox.DeliveryStatus, reason sandbox.DeliveryReason, got sandbox.Receipt) {
		w.Helper()
		if got.Status != status || got.Reason != reason {
			w.Errorf("the receipt is %+v, want %s, %s", got, status, reason)
		}
		listed := must(w.Service.ListDeliveries(w.Context(), sandbox.DeliveryFilter{ID: got.ID}))(w)
		if len(listed) != 1 || listed[0].Reason != reason {
			w.Errorf("the list has %+v, want %s", listed, reason)
		}
	}
	const unmatched, stale = sandbox.DeliveryUnmatched, sandbox.DeliveryStale
	wants(unmatched, sandbox.DeliveryNoEnvironment, w.deliver("agent.death", of(ann), elsewhere))
	wants(unmatched, sandbox.DeliveryNoEnvironment, w.deliver("game.finished", elsewhere))
	wants(unmatched, sandbox.DeliveryNoCondition, w.deliver("agent.winked", of(ann)))
	wants(unmatched, sandbox.DeliveryNoCondition, w.deliver("game.paused"))
	wants(unmatched, sandbox.DeliveryNoLease, w.deliver("agent.death", of(bob)))
	wants(stale, sandbox.DeliveryNotBegun, w.deliver("agent.death", of(ann), generation(99)))
	wants(stale, sandbox.DeliveryBeganLater, w.deliver("agent.death", of(ann), at(w.Now().Add(-time.Hour))))
	wants(sandbox.DeliveryApplied, "", w.deliver("agent.death", of(ann)))
	wants(unmatched, sandbox.DeliveryAlreadyEnded, w.deliver("agent.death", of(ann)))
	wants(unmatched, sandbox.DeliveryNotBegun, w.deliver("agent.death", of(ann), generation(99)))
	w.Advance(time.Second)
	w.acquire(ann)
	w.Advance(time.Second)
	wants(stale, sandbox.DeliveryAlreadyEnded, w.deliver("agent.death", of(ann), generation(1)))
	wants(sandbox.DeliveryApplied, "", w.deliver("game.finished"))
	d := w.delivery("again", "game.finished")
	wants(unmatched, sandbox.DeliveryAlreadyEnded, must(w.Service.Deliver(w.Context(), d))(w))
	if got := must(w.Service.Deliver(w.Context(), d))(w); !got.Duplicate || got.Reason != sandbox.DeliveryAlreadyEnded {
		w.Errorf("the repeated receipt is %+v", got)
	}
}

func deliveriesAreListedWithWhatTheyDid(w *world) {
	w.environment(rpg)
	w.acquire(ann)
	w.Advance(time.Second)
	w.deliver("agent.death", of(ann))
	w.deliver("game.paused")
	w.deliver("agent.death", of(bob), func(c *sandbox.Condition) { c.Data.EnvironmentID = "nowhere" })
	all := must(w.Service.ListDeliveries(w.Context(), sandbox.DeliveryFilter{}))(w)
	if len(all) != 3 || all[0].ID != "msg-3" || all[2].ID != "msg-1" {
		w.Fatalf("the deliveries are %+v", all)
	}
	first := all[2]
	want := w.delivery("msg-1", "agent.death", of(ann), at(first.OccurredAt))
	if first.Status != sandbox.DeliveryApplied || first.Matched != 1 || first.AgentDID != ann ||
		first.EnvironmentID != game || first.Type != "agent.death" || first.Body != string(want.Body) ||
		first.ReceivedAt.IsZero() {
		w.Errorf("the first is %+v", first)
	}
	for _, c := range []struct {
		filter sandbox.DeliveryFilter
		ids    string
	}{
		{sandbox.DeliveryFilter{EnvironmentID: game}, "msg-2 msg-1"},
		{sandbox.DeliveryFilter{Status: sandbox.DeliveryApplied}, "msg-1"}, {sandbox.DeliveryFilter{ID: "msg-2"}, "msg-2"},
		{sandbox.DeliveryFilter{ID: "msg-2", EnvironmentID: "nowhere"}, ""}, {sandbox.DeliveryFilter{Limit: 1}, "msg-3"},
		{sandbox.DeliveryFilter{Before: "nowhere.msg-3", Limit: 1}, "msg-2"},
		{sandbox.DeliveryFilter{Before: "nowhere.msg-3", EnvironmentID: game}, ""},
		{sandbox.DeliveryFilter{Before: game + ".msg-2", EnvironmentID: game}, "msg-1"},
		{sandbox.DeliveryFilter{Before: game + ".msg-1"}, ""}, {sandbox.DeliveryFilter{Before: "msg-3"}, ""},
	} {
		var ids []string
		for _, d := range must(w.Service.ListDeliveries(w.Context(), c.filter))(w) {
			ids = append(ids, d.ID)
		}
		if got := strings.Join(ids, " "); got != c.ids {
			w.Errorf("%+v selects %q, want %q", c.filter, got, c.ids)
		}
	}
	_, err := w.Service.ListDeliveries(w.Context(), sandbox.DeliveryFilter{Status: "x", Limit: 101})
	w.wantError(err, sandbox.Invalid, "", "status", "limit")
}

func lateConditionDoesNotEndTheNextLife(w *world) {
	w.environment(rpg)
	died := w.Now()
	w.Advance(time.Second)
	w.acquire(ann)
	w.wantReceipt(w.deliver("agent.death", of(ann), at(died)), sandbox.DeliveryStale, 0)
	w.wantReceipt(w.deliver("game.finished", at(died)), sandbox.DeliveryStale, 0)
	w.Advance(time.Second)
	w.wantLease(w.lease(ann), 1, sandbox.LeaseActive, "")
	w.wantLease(w.acquire(bob), 1, sandbox.LeaseActive, "") // and the environment is still open
}

// conditionOfTheMomentOfALease: clocks are not more precise, so the condition belongs to the previous life.
func conditionOfTheMomentOfALease(w *world) {
	w.environment(rpg)
	began := w.acquire(ann).LeasedAt
	w.Advance(time.Second)
	w.wantReceipt(w.deliver("agent.death", of(ann), at(began)), sandbox.DeliveryStale, 0)
	w.wantReceipt(w.deliver("game.finished", at(began)), sandbox.DeliveryStale, 0)
	w.wantLease(w.lease(ann), 1, sandbox.LeaseActive, "")
	w.wantReceipt(w.deliver("agent.death", of(ann), at(began.Add(time.Millisecond))), sandbox.DeliveryApplied, 1)
	w.Advance(time.Second)
	w.wantLease(w.lease(ann), 1, sandbox.LeaseDestroyed, sandbox.EndedByCondition)
}

func conditionForAGeneration(w *world) {
	w.environment(rpg)
	w.acquire(ann)
	must(w.Service.Release(w.Context(), sandbox.LeaseRef{ID: annsLease}))(w)
	w.acquire(ann)
	generation := func(n int64) func(c *sandbox.Condition) {
		return func(c *sandbox.Condition) { c.Data.Generation = n }
	}
	w.Advance(time.Second)
	w.wantReceipt(w.deliver("agent.death", of(ann), generation(1)), sandbox.DeliveryStale, 0)
	w.wantLease(w.lease(ann), 2, sandbox.LeaseActive, "")
	w.wantReceipt(w.deliver("agent.death", of(ann), generation(2)), sandbox.DeliveryApplied, 1)
	w.Advance(time.Second)
	w.wantLease(w.lease(ann), 2, sandbox.LeaseDestroyed, sandbox.EndedByCondition)
}

func endedEnvironmentIsReopened(w *world) {
	w.environment()
	w.acquire(ann)
	w.Advance(time.Second)
	w.deliver("game.finished")
	_, err := w.Service.Acquire(w.Context(), sandbox.Acquire{AgentDID: bob, EnvironmentID: game, Owner: owner})
	w.wantError(err, sandbox.EnvironmentEnded, "")
	for range 2 {
		e := must(w.Service.ReopenEnvironment(w.Context(), game))(w)
		if e.Status != sandbox.EnvironmentOpen || e.EndedBy != "" || !e.EndedAt.IsZero() {
			w.Errorf("reopened, it is %s, ended by %q", e.Status, e.EndedBy)
		}
	}
	w.wantLease(w.acquire(ann), 2, sandbox.LeaseActive, "")
	w.wantLease(w.acquire(bob), 1, sandbox.LeaseActive, "")
}

func higherEpochReopens(w *world) {
	w.environment()
	w.Advance(time.Second)
	w.deliver("game.finished")
	if e := w.environment(); e.Status != sandbox.EnvironmentClosed {
		w.Errorf("without an epoch, the repeated request made it %s", e.Status)
	}
	if e := w.environment(func(p *sandbox.PutEnvironment) { p.Epoch = 1 }); e.Status != sandbox.EnvironmentOpen ||
		e.Epoch != 1 {
		w.Errorf("with a higher epoch it is %s, epoch %d", e.Status, e.Epoch)
	}
	w.wantLease(w.acquire(ann), 1, sandbox.LeaseActive, "")
}

// higherEpochOutlivesTheEndOfTheGameBefore: the end of the game before may arrive after the epoch of the next one.
func higherEpochOutlivesTheEndOfTheGameBefore(w *world) {
	w.environment()
	w.acquire(ann)
	w.Advance(time.Second)
	over := w.Now()
	w.Advance(time.Second)
	if e := w.environment(func(p *sandbox.PutEnvironment) { p.Epoch = 1 }); e.Status != sandbox.EnvironmentOpen {
		w.Errorf("with a higher epoch it is %s", e.Status)
	}
	w.wantReceipt(w.deliver("game.finished", at(over)), sandbox.DeliveryApplied, 1) // ann's lease is of that game
	w.Advance(time.Second)
	w.wantLease(w.lease(ann), 1, sandbox.LeaseDestroyed, sandbox.EndedByCondition)
	w.wantReceipt(w.deliver("game.finished", at(over)), sandbox.DeliveryStale, 0)
	w.wantLease(w.acquire(bob), 1, sandbox.LeaseActive, "")
}
