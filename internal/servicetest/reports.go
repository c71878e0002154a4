package servicetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var reportTests = []test{
	{"LedgerIsIdentified", ledgerIsIdentified},
	{"EventsHaveNoGaps", eventsHaveNoGaps},
	{"EventFilterIsChecked", eventFilterIsChecked},
	{"LatestEventsComeFirst", latestEventsComeFirst},
	{"EventsAreFilteredByType", eventsAreFilteredByType},
	{"EventsAreFollowed", eventsAreFollowed},
	{"AFollowerReachesWhatItsFilterOmits", aFollowerReachesWhatItsFilterOmits},
	{"CostsAddUp", costsAddUp},
	{"CostQueryIsChecked", costQueryIsChecked},
	{"QueryOfLLMCallsIsChecked", queryOfLLMCallsIsChecked},
	{"LLMCallsOfOneMomentAreOnOnePageEach", llmCallsOfOneMoment},
	{"VanishedSandboxIsDrift", vanishedSandboxIsDrift},
	{"ListedLeasesAreObserved", listedLeasesAreObserved},
}

func ledgerIsIdentified(w *world) {
	info := must(w.Service.Ledger(w.Context()))(w)
	again := must(w.Service.Ledger(w.Context()))(w)
	if len(info.ID) != sandbox.LedgerIDLength || again.ID != info.ID || info.PriceBooks[sandbox.Docker].Name == "" {
		w.Errorf("the ledger is %+v", info)
	}
}

func eventsHaveNoGaps(w *world) {
	w.environment()
	l := w.acquire(ann)
	w.exec(sandbox.ExecRequest{Command: []string{"echo"}})
	must(w.Service.Renew(w.Context(), sandbox.Renew{LeaseRef: sandbox.LeaseRef{ID: annsLease}}))(w)
	l = must(w.Service.Release(w.Context(), sandbox.LeaseRef{ID: annsLease, Generation: l.Generation}))(w)

	filter := sandbox.EventFilter{SandboxID: l.SandboxID}
	all := must(w.Service.ListEvents(w.Context(), filter))(w)
	var kinds []sandbox.EventType
	for i, e := range all {
		kinds = append(kinds, e.Type)
		if e.Sequence != int64(i+1) || e.SandboxID != l.SandboxID || e.LeaseID != annsLease || e.Generation != 1 ||
			e.EnvironmentID != game {
			w.Errorf("event %d is %+v", i, e)
		}
		if i > 0 && (e.ID <= all[i-1].ID || e.At.Before(all[i-1].At)) {
			w.Errorf("event %+v follows %+v", e, all[i-1])
		}
	}
	want := []sandbox.EventType{
		sandbox.EventAccepted, sandbox.EventPreparing, sandbox.EventReady, sandbox.EventExecStarted,
		sandbox.EventExecFinished,
		sandbox.EventRenewed, sandbox.EventEnded, sandbox.EventDeleteRequested, sandbox.EventDeleted,
	}
	if !slices.Equal(kinds, want) {
		w.Errorf("the events are %q, want %q", kinds, want)
	}
	if l.LastSequence != int64(len(all)) {
		w.Errorf("the lease's last sequence is %d of %d", l.LastSequence, len(all))
	}
	for from := range all {
		filter.FromSequence = int64(from)
		if got := must(w.Service.ListEvents(w.Context(), filter))(w); len(got) != len(all)-from || got[0].ID != all[from].ID {
			w.Errorf("from sequence %d there are %d events", from, len(got))
		}
	}
	var paged []sandbox.Event
	for page := (sandbox.EventFilter{EnvironmentID: game, Limit: 3}); ; {
		got := must(w.Service.ListEvents(w.Context(), page))(w)
		paged = append(paged, got...)
		if len(got) < page.Limit {
			break
		}
		page.AfterID = got[len(got)-1].ID
	}
	if whole := must(w.Service.ListEvents(w.Context(),
		sandbox.EventFilter{EnvironmentID: game}))(w); len(paged) != len(whole) || len(whole) != len(all)+1 {
		w.Errorf("there are %d events by pages, %d in one page, %d of the sandbox and 1 of the environment",
			len(paged), len(whole), len(all))
	}
}

func latestEventsComeFirst(w *world) {
	w.environment()
	w.acquire(ann)
	all := must(w.Service.ListEvents(w.Context(), sandbox.EventFilter{EnvironmentID: game}))(w)
	var back []sandbox.Event
	for f := (sandbox.EventFilter{EnvironmentID: game, Latest: true, Limit: 2}); ; {
		page := must(w.Service.ListEvents(w.Context(), f))(w)
		back = append(back, page...)
		if len(page) < f.Limit {
			break
		}
		f.BeforeID = page[len(page)-1].ID
	}
	slices.Reverse(back)
	if len(all) < 3 || !slices.EqualFunc(all, back, func(a, b sandbox.Event) bool { return a.ID == b.ID }) {
		w.Errorf("backwards there are %+v, forwards %+v", back, all)
	}
	err := w.Service.FollowEvents(w.Context(), sandbox.EventFilter{Latest: true}, func(sandbox.Event) error { return nil })
	w.wantError(err, sandbox.Invalid, "", "latest")
}

func eventFilterIsChecked(w *world) {
	w.environment()
	l := w.acquire(ann)
	for _, c := range []struct {
		filter sandbox.EventFilter
		code   sandbox.Code
		reason sandbox.Reason
		fields []string
	}{
		{sandbox.EventFilter{FromSequence: 1}, sandbox.Invalid, "", []string{"from_sequence"}},
		{sandbox.EventFilter{SandboxID: l.SandboxID, FromSequence: 99}, sandbox.Invalid, "", nil},
		{sandbox.EventFilter{SandboxID: l.SandboxID, FromSequence: -1}, sandbox.Invalid, "", nil},
		{sandbox.EventFilter{Latest: true, AfterID: 1}, sandbox.Invalid, "", []string{"latest"}},
		{sandbox.EventFilter{BeforeID: 1}, sandbox.Invalid, "", []string{"before_id"}},
		{sandbox.EventFilter{Type: "egress.denid"}, sandbox.Invalid, "", []string{"type"}},
		{sandbox.EventFilter{Type: "sandbox"}, sandbox.Invalid, "", []string{"type"}},
		{sandbox.EventFilter{Type: "*.denied"}, sandbox.Invalid, "", []string{"type"}},
		{sandbox.EventFilter{Type: "egres.*"}, sandbox.Invalid, "", []string{"type"}},
		{sandbox.EventFilter{SandboxID: "aaaaaaaaaaaaaaaaaaaaaaaaaa"}, sandbox.NotFound, sandbox.ReasonSandboxNotFound, nil},
	} {
		_, err := w.Service.ListEvents(w.Context(), c.filter)
		w.wantError(err, c.code, c.reason, c.fields...)
		err = w.Service.FollowEvents(w.Context(), c.filter, func(sandbox.Event) error { return nil })
		w.wantError(err, c.code, c.reason, c.fields...)
	}
}

func eventsAreFilteredByType(w *world) {
	w.environment()
	l := w.acquire(ann)
	for _, c := range []struct {
		kind string
		want []sandbox.EventType
	}{
		{"sandbox.ready", []sandbox.EventType{sandbox.EventReady}},
		{"sandbox.*", []sandbox.EventType{sandbox.EventAccepted, sandbox.EventPreparing, sandbox.EventReady}},
		{"sandbox.prep*", []sandbox.EventType{sandbox.EventPreparing}},
		{"egress.*", nil},
	} {
		for _, f := range []sandbox.EventFilter{
			{Type: c.kind}, {Type: c.kind, SandboxID: l.SandboxID}, {Type: c.kind, EnvironmentID: game},
		} {
			var got []sandbox.EventType
			for _, e := range must(w.Service.ListEvents(w.Context(), f))(w) {
				got = append(got, e.Type)
			}
			if !slices.Equal(got, c.want) {
				w.Errorf("of type %q there are %v, want %v", c.kind, got, c.want)
			}
		}
	}
}

func aFollowerReachesWhatItsFilterOmits(w *world) {
	w.environment()
	w.acquire(ann)
	last := must(w.Service.Ledger(w.Context()))(w).LastEventID
	ctx, cancel := context.WithCancel(w.Context())
	var reached atomic.Int64
	ended := make(chan error, 1)
	go func() {
		ended <- w.Service.FollowEvents(ctx, sandbox.EventFilter{Type: "token.*", Reached: &reached},
			func(e sandbox.Event) error { return fmt.Errorf("it brings %+v", e) })
	}()
	testwait.Until(w, 10*time.Second, "it reaches the ledger's last event", func() bool { return reached.Load() == last })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		w.Error(err)
	}
}

func eventsAreFollowed(w *world) {
	w.environment()
	l := w.acquire(ann)
	ctx, cancel := context.WithTimeout(w.Context(), 30*time.Second)
	defer cancel()
	var sequences []int64
	released := make(chan error, 1)
	enough := errors.New("enough")
	err := w.Service.FollowEvents(ctx, sandbox.EventFilter{SandboxID: l.SandboxID}, func(e sandbox.Event) error {
		sequences = append(sequences, e.Sequence)
		switch e.Type {
		case sandbox.EventReady: // all stored events have arrived; now make a new one
			go func() {
				_, err := w.Service.Release(ctx, sandbox.LeaseRef{ID: annsLease})
				released <- err
			}()
		case sandbox.EventDeleted:
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		w.Errorf("following ended with %v", err)
	}
	if !slices.Equal(sequences, []int64{1, 2, 3, 4, 5, 6}) {
		w.Errorf("the sequences are %v", sequences)
	}
	if err := <-released; err != nil {
		w.Error(err)
	}
	stopped, stop := context.WithCancel(ctx)
	err = w.Service.FollowEvents(stopped, sandbox.EventFilter{SandboxID: l.SandboxID}, func(sandbox.Event) error {
		stop()
		return nil
	})
	if err == nil {
		w.Error("stopped, following ended without an error")
	}
}

func costsAddUp(w *world) {
	w.environment()
	w.acquire(ann)
	w.acquire(bob)
	w.Advance(2 * time.Hour)
	must(w.Service.Sleep(w.Context(), sandbox.LeaseRef{ID: annsLease}))(w)
	w.Advance(time.Hour)
	must(w.Service.Release(w.Context(), sandbox.LeaseRef{ID: annsLease}))(w)
	w.acquire(ann)
	w.Advance(15 * time.Hour) // over midnight

	report := must(w.Service.Costs(w.Context(), sandbox.CostQuery{}))(w)
	if len(report.Rows) != 2 || !report.AsOf.Equal(w.Now()) || report.PriceBooks[sandbox.Docker].Name == "" {
		w.Fatalf("the report is %+v", report)
	}
	row := report.Rows[slices.IndexFunc(report.Rows, func(r sandbox.CostRow) bool { return r.AgentDID == ann })]
	if row.LeaseID != annsLease || row.Generations != 2 || !near(row.AwakeSeconds, 17*3600) ||
		!near(row.AsleepSeconds, 3600) {
		w.Errorf("ann's row is %+v", row)
	}
	if report.Total.Gross <= 0 || report.Total.Shadow <= 0 {
		w.Errorf("it cost %s, on Cloudflare %s", report.Total.Gross, report.Total.Shadow)
	}
	groups := map[sandbox.CostGroup]int{
		sandbox.CostByLease:       2,
		sandbox.CostByAgent:       2,
		sandbox.CostByEnvironment: 1,
		sandbox.CostByDay:         2,
		sandbox.CostByMonth:       1,
	}
	for group, rows := range groups {
		r := must(w.Service.Costs(w.Context(), sandbox.CostQuery{EnvironmentID: game, GroupBy: group}))(w)
		var sum, used sandbox.NanoUSD
		for _, row := range r.Rows {
			sum += row.Gross
		}
		for _, a := range r.Accounts {
			used += a.Gross
		}
		if len(r.Rows) != rows || sum != r.Total.Gross || used != sum || r.Total.Total != sum ||
			!near(float64(sum), float64(report.Total.Gross)) {
			w.Errorf("by %s: %d rows of %s, total %+v, the accounts used %s; in all %+v",
				group, len(r.Rows), sum, r.Total, used, report.Total)
		}
	}
	a := report.Accounts[0]
	if len(report.Accounts) != 1 || a.Backend != sandbox.Docker || a.PriceBook != report.PriceBooks[sandbox.Docker].Name ||
		a.PlanFee != report.PriceBooks[sandbox.Docker].PlanMonth || len(a.Lines) != 4 || a.Shadow.PlanFee != 5*sandbox.USD {
		w.Errorf("the accounts are %+v", report.Accounts)
	}
	half := must(w.Service.Costs(w.Context(),
		sandbox.CostQuery{AgentDID: bob, From: w.Now().Add(-time.Hour), To: w.Now().Add(-30 * time.Minute)}))(w)
	if !near(half.Total.AwakeSeconds, 1800) || half.Total.Gross <= 0 || half.Total.Gross >= a.Gross {
		w.Errorf("half an hour is %+v", half.Total)
	}
	if l := w.lease(bob); l.Cost == 0 {
		w.Error("the lease shows no cost")
	}
}

func costQueryIsChecked(w *world) {
	now := w.Now()
	must(w.Service.Costs(w.Context(), sandbox.CostQuery{From: now, To: now}))(w)
	_, err := w.Service.Costs(w.Context(),
		sandbox.CostQuery{GroupBy: "colour", From: now, To: now.Add(-time.Second)})
	w.wantError(err, sandbox.Invalid, "", "from", "group_by")
}

// near allows for the rounding of nano-dollars and microseconds.
func near(got, want float64) bool { return math.Abs(got-want) <= 10+want/1e6 }

// Many leases of a page are inspected by one list of the backend, few leases one by one.
func listedLeasesAreObserved(w *world) {
	w.environment()
	for _, many := range []int{2, 8} {
		var leases []sandbox.Lease
		for i := range many {
			leases = append(leases, w.acquire(fmt.Sprintf("did:plc:of-%d-%d", many, i)))
		}
		w.Remove(leases[1].SandboxID)
		if l := must(w.Service.GetLease(w.Context(), leases[1].ID))(w); !l.EndedAt.IsZero() {
			w.Errorf("of %d: the end is known before a look: %+v", many, l)
		}
		seen := must(w.Service.ListLeases(w.Context(), sandbox.LeaseFilter{
			EnvironmentID: game, After: fmt.Sprintf("did:plc:of-%d", many), Limit: many, Observe: true,
		}))(w)
		if len(seen) != many {
			w.Fatalf("of %d are listed %d", many, len(seen))
		}
		for i, l := range seen {
			if l.ID != leases[i].ID {
				w.Errorf("of %d, lease %d is %s", many, i, l.ID)
			}
			if vanished := l.EndedBy == sandbox.EndedByVanished; vanished != (i == 1) {
				w.Errorf("of %d, lease %d is %s and has ended by %q", many, i, l.Status, l.EndedBy)
			}
		}
	}
}

func vanishedSandboxIsDrift(w *world) {
	w.environment()
	l := w.acquire(ann)
	w.acquire(bob)
	w.Remove(l.SandboxID)
	seen := must(w.Service.ObserveLease(w.Context(), annsLease))(w)
	w.wantLease(seen, 1, sandbox.LeaseExpired, sandbox.EndedByVanished) // until its remains are gone too
	w.Advance(time.Second)
	w.wantLease(w.lease(ann), 1, sandbox.LeaseDestroyed, sandbox.EndedByVanished)
	findings := must(w.Service.ListDrift(w.Context(), sandbox.DriftFilter{EnvironmentID: game}))(w)
	if len(findings) != 1 || findings[0].Kind != sandbox.DriftVanished || findings[0].LeaseID != annsLease ||
		findings[0].SandboxID != l.SandboxID || findings[0].Instance == "" {
		w.Errorf("the findings are %+v", findings)
	}
	for _, f := range []sandbox.DriftFilter{
		{LeaseID: annsLease, Kind: sandbox.DriftVanished}, {Status: findings[0].Status()},
	} {
		if same := must(w.Service.ListDrift(w.Context(), f))(w); len(same) != 1 {
			w.Errorf("%+v lists %+v", f, same)
		}
	}
	_, err := w.Service.ListDrift(w.Context(), sandbox.DriftFilter{Kind: "moved", Status: "closed"})
	w.wantError(err, sandbox.Invalid, "", "kind", "status")
	other := sandbox.DriftOpen
	if findings[0].Status() == other {
		other = sandbox.DriftResolved
	}
	for _, f := range []sandbox.DriftFilter{
		{LeaseID: sandbox.LeaseID(bob, game)}, {EnvironmentID: "other"}, {Kind: sandbox.DriftChanged}, {Status: other},
	} {
		if none := must(w.Service.ListDrift(w.Context(), f))(w); len(none) != 0 {
			w.Errorf("%+v lists %+v", f, none)
		}
	}
	w.wantLease(must(w.Service.ObserveLease(w.Context(), sandbox.LeaseID(bob, game)))(w), 1, sandbox.LeaseActive, "")
	w.wantLease(w.acquire(ann), 2, sandbox.LeaseActive, "")
}

func queryOfLLMCallsIsChecked(w *world) {
	w.environment()
	w.acquire(ann)
	calls := must(w.Service.ListLLMCalls(w.Context(), sandbox.LLMCallQuery{
		LeaseID: annsLease, Before: w.Now().Format(time.RFC3339Nano), Limit: 5,
	}))(w)
	if len(calls) != 0 {
		w.Errorf("without a route there are the calls %+v", calls)
	}
	_, err := w.Service.ListLLMCalls(w.Context(),
		sandbox.LLMCallQuery{Before: "yesterday", Limit: sandbox.MaxLLMCalls + 1})
	w.wantError(err, sandbox.Invalid, "", "before", "limit")
}

// Pages list each call once, even if many began in one microsecond.
func llmCallsOfOneMoment(w *world) {
	w.environment(func(p *sandbox.PutEnvironment) {
		p.SecretValues = map[string]sandbox.Secret{"model_key": "sk-none"}
		p.LLM = map[string]sandbox.LLMRoute{"main": {
			API: sandbox.LLMOpenAI, Credential: "model_key",
			Models: map[string]sandbox.LLMModel{"small": {Input: sandbox.USD, Output: sandbox.USD}},
		}}
	})
	l := w.acquire(ann)
	var want []string
	for i := range 5 {
		want = append(want, fmt.Sprintf("c-%d", 5-i))
		w.CallModels(game, sandbox.LLMCall{ID: fmt.Sprintf("c-%d", i+1), LeaseID: l.ID, Generation: l.Generation,
			SandboxID: l.SandboxID, AgentDID: l.AgentDID, Route: "main", Model: "small", StartedAt: w.Now(),
			EndedAt: w.Now(), Outcome: sandbox.LLMUnsent})
	}
	var got []string
	for q := (sandbox.LLMCallQuery{LeaseID: l.ID, Limit: 2}); ; {
		page := must(w.Service.ListLLMCalls(w.Context(), q))(w)
		for _, c := range page {
			got = append(got, c.ID)
		}
		if len(page) < q.Limit {
			break
		}
		q.Before = page[len(page)-1].Cursor()
	}
	if !slices.Equal(got, want) {
		w.Errorf("the pages list %q, want %q", got, want)
	}
}
