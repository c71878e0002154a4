package servicetest

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var retentionTests = []test{
	{"PurgedLeaseIsRemembered", purgedLeaseIsRemembered},
	{"PurgedLeaseGoesOnCounting", purgedLeaseGoesOnCounting},
	{"PurgedEnvironmentIsKeptByName", purgedEnvironmentIsKeptByName},
	{"CostsOutliveRetention", costsOutliveRetention},
	{"WhatIsNotOldEnoughIsKept", whatIsNotOldEnoughIsKept},
	{"ExpiredEventsAreSaidToBe", expiredEventsAreSaidToBe},
	{"SnapshotSaysWhereToGoOn", snapshotSaysWhereToGoOn},
	{"DeliveryIsKnownAsLongAsItIsRetained", deliveryIsKnownAsLongAsItIsRetained},
}

const cleanupTTL = 720 * time.Hour

// purge lets the retention time of everything that has ended pass, and purges it.
func (w *world) purge() {
	w.Helper()
	w.Advance(cleanupTTL + time.Second)
	w.Purge(cleanupTTL)
}

// endedLease returns a lease of ann that was used for two hours around noon and released.
func endedLease(w *world) sandbox.Lease {
	w.Helper()
	w.environment()
	w.acquire(ann)
	w.Advance(2 * time.Hour)
	return must(w.Service.Release(w.Context(), sandbox.LeaseRef{ID: annsLease}))(w)
}

func purgedLeaseIsRemembered(w *world) {
	was := endedLease(w)
	w.purge()
	l := w.lease(ann)
	w.wantLease(l, 1, sandbox.LeaseDestroyed, sandbox.EndedByRelease)
	if l.PurgedAt.IsZero() || l.SandboxID != was.SandboxID || l.AgentDID != ann || l.EnvironmentID != game ||
		l.Owner != owner || l.Cost != was.Cost || was.Cost == 0 || l.LastSequence != was.LastSequence ||
		!l.LeasedAt.Equal(was.LeasedAt) || !l.EndedAt.Equal(was.EndedAt) || !l.DestroyedAt.Equal(was.DestroyedAt) {
		w.Errorf("the lease was %+v\nand is remembered as %+v", was, l)
	}
	if l.Image != "" || len(l.ExpiryConditions) != 0 {
		w.Errorf("more is kept than has to be: %+v", l)
	}
	if all := must(w.Service.ListLeases(w.Context(), sandbox.LeaseFilter{}))(w); len(all) != 0 {
		w.Errorf("the list still has %+v", all)
	}
	must(w.Service.ObserveLease(w.Context(), annsLease))(w)
	again := must(w.Service.Release(w.Context(), sandbox.LeaseRef{ID: annsLease, Generation: 1, Owner: owner}))(w)
	w.wantLease(again, 1, sandbox.LeaseDestroyed, sandbox.EndedByRelease)
	_, err := w.Service.Renew(w.Context(), sandbox.Renew{LeaseRef: sandbox.LeaseRef{ID: annsLease}})
	w.wantError(err, sandbox.LeaseEnded, "")
	_, err = w.Service.Exec(w.Context(), sandbox.LeaseRef{ID: annsLease}, sandbox.ExecRequest{Command: []string{"true"}})
	w.wantError(err, sandbox.LeaseEnded, "")
	_, err = w.Service.Release(w.Context(), sandbox.LeaseRef{ID: annsLease, Generation: 2})
	w.wantError(err, sandbox.Conflict, sandbox.ReasonOtherGeneration)
	_, err = w.Service.GetLease(w.Context(), sandbox.LeaseID(bob, game))
	w.wantError(err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	w.wantReceipt(w.deliver("game.finished", of(ann)), sandbox.DeliveryUnmatched, 0)
}

func purgedLeaseGoesOnCounting(w *world) {
	first := endedLease(w)
	w.purge()
	second := w.acquire(ann)
	w.wantLease(second, 2, sandbox.LeaseActive, "")
	if second.SandboxID == first.SandboxID || second.LastSequence != 3 || !second.PurgedAt.IsZero() {
		w.Errorf("the next generation is %+v", second)
	}
	// The next generation is purged while its successor lives.
	must(w.Service.Release(w.Context(), sandbox.LeaseRef{ID: annsLease}))(w)
	third := w.acquire(ann)
	w.Pass(cleanupTTL + time.Second)
	w.Purge(cleanupTTL)
	if l := w.lease(ann); l.Generation != 3 || l.SandboxID != third.SandboxID || !l.PurgedAt.IsZero() {
		w.Errorf("the living generation is %+v", l)
	}
}

func purgedEnvironmentIsKeptByName(w *world) {
	w.environment(func(p *sandbox.PutEnvironment) { p.Env = map[string]string{"BOARD": "large"} })
	w.acquire(ann)
	if err := w.Service.DeleteEnvironment(w.Context(), sandbox.DeleteEnvironment{ID: game, Force: true}); err != nil {
		w.Fatal(err)
	}
	w.purge()
	env := must(w.Service.GetEnvironment(w.Context(), game))(w)
	if env.Status != sandbox.EnvironmentDestroyed || env.PurgedAt.IsZero() || env.Owner != owner ||
		env.Image != "" || env.Env != nil {
		w.Errorf("the environment is kept as %+v", env)
	}
	w.wantLease(w.lease(ann), 1, sandbox.LeaseDestroyed, sandbox.EndedByEnvironment)
	if err := w.Service.DeleteEnvironment(w.Context(), sandbox.DeleteEnvironment{ID: game}); err != nil {
		w.Errorf("destroying it again: %v", err)
	}
	_, err := w.Service.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: owner})
	w.wantError(err, sandbox.NotFound, "")
	if anew := w.environment(); anew.Status != sandbox.EnvironmentOpen || !anew.PurgedAt.IsZero() {
		w.Errorf("made anew it is %+v", anew)
	}
	w.wantLease(w.acquire(ann), 2, sandbox.LeaseActive, "")
}

func costsOutliveRetention(w *world) {
	endedLease(w)
	w.acquire(ann)
	w.acquire(bob)
	w.Advance(13 * time.Hour) // over midnight
	must(w.Service.Sleep(w.Context(), sandbox.LeaseRef{ID: annsLease}))(w)
	w.Advance(time.Hour)
	must(w.Service.Release(w.Context(), sandbox.LeaseRef{ID: annsLease}))(w)
	must(w.Service.Release(w.Context(), sandbox.LeaseRef{ID: sandbox.LeaseID(bob, game)}))(w)
	w.Advance(cleanupTTL + time.Second)
	noon := time.Date(2026, 8, 15, 12, 30, 0, 0, time.UTC)
	day := noon.Truncate(24 * time.Hour)
	must(w.Service.Costs(w.Context(), sandbox.CostQuery{From: noon}))(w)

	reports := func() (all []sandbox.CostReport) {
		for _, group := range []sandbox.CostGroup{
			sandbox.CostByLease, sandbox.CostByEnvironment, sandbox.CostByAgent, sandbox.CostByDay, sandbox.CostByMonth,
		} {
			for _, q := range []sandbox.CostQuery{
				{}, {From: day, To: day.Add(24 * time.Hour)}, {From: day.Add(24 * time.Hour)}, {AgentDID: ann},
				{EnvironmentID: game}, {From: time.Date(1969, 12, 31, 12, 0, 0, 0, time.UTC)},
			} {
				q.GroupBy = group
				all = append(all, must(w.Service.Costs(w.Context(), q))(w))
			}
		}
		return all
	}
	before := reports()
	w.Purge(cleanupTTL)
	if l := w.lease(ann); l.PurgedAt.IsZero() {
		w.Fatalf("nothing was purged: %+v", l)
	}
	for i, after := range reports() {
		if !reflect.DeepEqual(after, before[i]) || after.Total.Gross == 0 {
			w.Errorf("costs were\n%+v\nand are after retention\n%+v", before[i], after)
		}
	}
	_, err := w.Service.Costs(w.Context(), sandbox.CostQuery{From: noon})
	w.wantError(err, sandbox.Invalid, "", "from")
	if info := must(w.Service.Ledger(w.Context()))(w); !info.DetailSince.After(noon) || info.DetailSince.After(w.Now()) {
		w.Errorf("detail is kept since %s", info.DetailSince)
	}
}

func whatIsNotOldEnoughIsKept(w *world) {
	was := endedLease(w)
	w.deliver("game.finished", of(bob))
	before := must(w.Service.ListEvents(w.Context(), sandbox.EventFilter{}))(w)
	w.Advance(cleanupTTL - time.Minute)
	w.Purge(cleanupTTL)
	if l := w.lease(ann); l.Image != was.Image || !l.PurgedAt.IsZero() {
		w.Errorf("the lease is %+v", l)
	}
	// The environment's first event is older.
	if after := must(w.Service.ListEvents(w.Context(), sandbox.EventFilter{}))(w); len(after) < len(before)-1 {
		w.Errorf("%d events were retained of %d", len(after), len(before))
	}
	r := must(w.Service.Deliver(w.Context(),
		w.delivery("msg-1", "game.finished", of(bob), at(w.Now().Add(-cleanupTTL+time.Minute)))))
	if receipt := r(w); !receipt.Duplicate {
		w.Errorf("the delivery is not known any more: %+v", receipt)
	}
}

func expiredEventsAreSaidToBe(w *world) {
	ended := endedLease(w)
	all := must(w.Service.ListEvents(w.Context(), sandbox.EventFilter{}))(w)
	w.purge()
	w.environment(func(p *sandbox.PutEnvironment) { p.TTL = sandbox.Duration(3 * time.Hour) }) // has an event
	info := must(w.Service.Ledger(w.Context()))(w)
	if oldest := all[len(all)-1].ID; info.PurgedEventID != oldest || info.LastEventID <= oldest {
		w.Errorf("events up to %d were purged and %d is the last, as the ledger says: %+v", oldest, info.LastEventID, info)
	}
	for _, c := range []struct {
		filter sandbox.EventFilter
		code   sandbox.Code
	}{
		{sandbox.EventFilter{AfterID: all[0].ID}, sandbox.EventSequenceExpired},
		{sandbox.EventFilter{AfterID: all[0].ID, EnvironmentID: game}, sandbox.EventSequenceExpired},
		{sandbox.EventFilter{SandboxID: ended.SandboxID}, sandbox.EventSequenceExpired},
		{sandbox.EventFilter{SandboxID: ended.SandboxID, FromSequence: 2}, sandbox.EventSequenceExpired},
		{sandbox.EventFilter{SandboxID: ended.SandboxID, FromSequence: ended.LastSequence + 1}, sandbox.Invalid},
		{sandbox.EventFilter{AfterID: info.LastEventID + 1}, sandbox.Invalid},
		{sandbox.EventFilter{AfterID: -1}, sandbox.Invalid},
	} {
		_, err := w.Service.ListEvents(w.Context(), c.filter)
		w.wantError(err, c.code, "")
		ctx, cancel := context.WithTimeout(w.Context(), 30*time.Second)
		err = w.Service.FollowEvents(ctx, c.filter, func(sandbox.Event) error { return nil })
		cancel()
		w.wantError(err, c.code, "")
	}
	for _, f := range []sandbox.EventFilter{
		{}, {AfterID: info.PurgedEventID}, {AfterID: info.LastEventID},
		{SandboxID: ended.SandboxID, FromSequence: ended.LastSequence},
		{SandboxID: ended.SandboxID, AfterID: info.PurgedEventID},
	} {
		for _, e := range must(w.Service.ListEvents(w.Context(), f))(w) {
			if e.ID <= info.PurgedEventID {
				w.Errorf("%+v lists the purged event %+v", f, e)
			}
		}
	}
}

func snapshotSaysWhereToGoOn(w *world) {
	env := w.environment()
	l := w.acquire(ann)
	renewed := must(w.Service.Renew(w.Context(), sandbox.Renew{LeaseRef: sandbox.LeaseRef{ID: annsLease}}))(w)
	read := w.lease(ann)
	list := must(w.Service.ListLeases(w.Context(), sandbox.LeaseFilter{}))(w)
	environments := must(w.Service.ListEnvironments(w.Context()))(w)
	info := must(w.Service.Ledger(w.Context()))(w)
	all := must(w.Service.ListEvents(w.Context(), sandbox.EventFilter{}))(w)
	last := all[len(all)-1]
	if last.Type != sandbox.EventRenewed || renewed.LastEventID != last.ID || read.LastEventID != last.ID ||
		list[0].LastEventID != last.ID || environments[0].LastEventID != last.ID || info.LastEventID != last.ID {
		w.Errorf("the last event is %+v; renewed %d, read %d, listed %d, environment %d, ledger %d", last,
			renewed.LastEventID, read.LastEventID, list[0].LastEventID, environments[0].LastEventID, info.LastEventID)
	}
	if env.LastEventID != all[0].ID || l.LastEventID != all[3].ID {
		w.Errorf("the environment was read at %d and the lease at %d, of %+v", env.LastEventID, l.LastEventID, all)
	}
	must(w.Service.Sleep(w.Context(), sandbox.LeaseRef{ID: annsLease}))(w)
	enough := errors.New("enough")
	for _, f := range []sandbox.EventFilter{
		{AfterID: read.LastEventID}, {SandboxID: read.SandboxID, FromSequence: read.LastSequence},
		{EnvironmentID: game, AfterID: environments[0].LastEventID},
	} {
		ctx, cancel := context.WithTimeout(w.Context(), 30*time.Second)
		err := w.Service.FollowEvents(ctx, f, func(e sandbox.Event) error {
			if e.Type != sandbox.EventAsleep || e.Sequence != read.LastSequence+1 {
				w.Errorf("after %+v follows %+v", f, e)
			}
			return enough
		})
		if cancel(); !errors.Is(err, enough) {
			w.Errorf("following %+v ended with %v", f, err)
		}
	}
}

func deliveryIsKnownAsLongAsItIsRetained(w *world) {
	w.environment()
	finished := w.delivery("msg-1", "game.finished", of(ann))
	must(w.Service.Deliver(w.Context(), finished))(w)
	w.Advance(cleanupTTL)
	w.Purge(cleanupTTL)
	if r := must(w.Service.Deliver(w.Context(), finished))(w); !r.Duplicate {
		w.Errorf("within its retention a message counts as new: %+v", r)
	}
	w.Advance(time.Second)
	w.Purge(cleanupTTL)
	l := w.acquire(ann)
	r := must(w.Service.Deliver(w.Context(), finished))(w)
	w.wantReceipt(r, sandbox.DeliveryStale, 0) // it counts as new, but ends no lease that began after it
	w.wantLease(w.lease(ann), l.Generation, sandbox.LeaseActive, "")
}
