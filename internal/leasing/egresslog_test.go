package leasing_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// tried is one line of a gateway's log.
func tried(sandboxID string, kind sandbox.EgressKind, verdict sandbox.EgressVerdict,
	id, host string) sandbox.EgressRecord {
	r := sandbox.EgressRecord{Kind: kind, SandboxID: sandboxID, Verdict: verdict,
		EgressAttempt: sandbox.EgressAttempt{
			Attempt:  id,
			At:       time.Now(),
			AgentDID: ann,
			Host:     host,
			Port:     443,
			Ended:    kind == sandbox.EgressClosed,
		}}
	if r.Ended && verdict == sandbox.EgressAllowed {
		r.SentBytes, r.ReceivedBytes = 10, 1000
	}
	return r
}

func (w *world) gatewayRef() driver.EnvironmentRef {
	return driver.EnvironmentRef{LedgerID: w.store.ID(), EnvironmentID: game, Instance: "engine-1"}
}

func (w *world) collectEgress() {
	w.Helper()
	if err := w.engine.CollectEgress(w.Context(), sandbox.Docker); err != nil {
		w.Fatal(err)
	}
}

// egress lists the events of attempts as "type host", and a summary by its data.
func (w *world) egress() (list []string) {
	w.Helper()
	events, err := w.engine.ListEvents(w.Context(), sandbox.EventFilter{EnvironmentID: game, Type: "egress.*"})
	if err != nil {
		w.Fatal(err)
	}
	for _, e := range events {
		var a sandbox.EgressAttempt
		if err := json.Unmarshal(e.Data, &a); err != nil {
			w.Fatal(err)
		}
		text := string(e.Type)
		if a.Attempt != "" {
			text = fmt.Sprintf("%s %s %d/%d", e.Type, a.Host, a.SentBytes, a.ReceivedBytes)
		}
		list = append(list, text)
	}
	return list
}

func (w *world) wantEgress(want ...string) {
	w.Helper()
	if got := w.egress(); !slices.Equal(got, want) {
		w.Errorf("the events are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestWhatASandboxTriesToReachIsAnEventOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(func(p *sandbox.PutEnvironment) { p.Network = sandbox.NetworkRestricted })
		l, ref := w.acquire(ann), w.gatewayRef()
		w.backend.LogEgress(ref,
			tried(l.SandboxID, sandbox.EgressOpened, sandbox.EgressAllowed, "a-1", "good.test"),
			tried(l.SandboxID, sandbox.EgressClosed, sandbox.EgressRefused, "a-2", "evil.test\x00"),
			tried(l.SandboxID, sandbox.EgressClosed, sandbox.EgressFailed, "a-3", "away.test"),
			tried(l.SandboxID, sandbox.EgressOpened, sandbox.EgressAllowed, "a-4", "long.test"),
			tried(l.SandboxID, sandbox.EgressClosed, sandbox.EgressAllowed, "a-1", "good.test"),
			tried("somebody-else", sandbox.EgressClosed, sandbox.EgressRefused, "b-1", "evil.test"),
		)
		want := []string{
			"egress.allowed good.test 10/1000", "egress.denied evil.test\x00 0/0", "egress.failed away.test 0/0",
			"egress.allowed long.test 0/0",
		}
		for range 2 { // the second time there is nothing new
			w.collectEgress()
			w.wantEgress(want...)
		}
		w.close()
		w.open()
		w.backend.LogEgress(ref, tried(l.SandboxID, sandbox.EgressClosed, sandbox.EgressAllowed, "a-4", "long.test"))
		w.collectEgress()
		w.wantEgress(append(want, "egress.closed long.test 10/1000")...)

		now := w.lease(l.ID)
		events, err := w.engine.ListEvents(w.Context(), sandbox.EventFilter{SandboxID: l.SandboxID})
		if err != nil || now.LastSequence != int64(len(events)) || events[len(events)-1].LeaseID != l.ID {
			t.Errorf("the lease is at sequence %d of %d events, %v", now.LastSequence, len(events), err)
		}
	})
}

// A gateway's log is read some seconds later. By then a sandbox may be gone.
func TestNothingFollowsOnASandboxsLastEvent(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(func(p *sandbox.PutEnvironment) { p.Network = sandbox.NetworkRestricted })
		l := w.acquire(ann)
		if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
			w.Fatal(err)
		}
		for range 400 { // more than are recorded one by one
			w.backend.LogEgress(w.gatewayRef(),
				tried(l.SandboxID, sandbox.EgressClosed, sandbox.EgressRefused, "a-1", "evil.test"))
		}
		w.collectEgress()
		if told := w.told(l.SandboxID); told[len(told)-1] != sandbox.EventDeleted ||
			w.lease(l.ID).LastSequence != int64(len(told)) {
			w.Errorf("the sandbox's events are %q", told)
		}
		events, err := w.engine.ListEvents(w.Context(), sandbox.EventFilter{EnvironmentID: game, Type: "egress.*"})
		if err != nil || len(events) != 301 || events[300].Type != sandbox.EventEgressSummary {
			w.Fatalf("%d attempts are told of: %v", len(events), err)
		}
		for _, e := range events {
			var a struct{ Of sandbox.EgressSource }
			if err := json.Unmarshal(e.Data, &a); err != nil || e.Sequence != 0 ||
				a.Of != (sandbox.EgressSource{SandboxID: l.SandboxID, LeaseID: l.ID, Generation: 1}) {
				w.Fatalf("an attempt has the event %+v %s: %v", e, e.Data, err)
			}
		}
	})
}

// A line counts once, however often and by however many engines a log is read.
func TestSeveralReconcilersRecordAnAttemptOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(func(p *sandbox.PutEnvironment) { p.Network = sandbox.NetworkRestricted })
		l, other := w.acquire(ann), w.newEngine(w.store)
		defer func() {
			if err := other.Close(); err != nil {
				t.Error(err)
			}
		}()
		const lines = 200
		for i := range lines {
			w.backend.LogEgress(w.gatewayRef(),
				tried(l.SandboxID, sandbox.EgressClosed, sandbox.EgressRefused, fmt.Sprintf("a-%d", i), "evil.test"))
		}
		failed := make(chan error, 8)
		for i := range cap(failed) {
			go func() {
				failed <- []*leasing.Service{w.engine, other}[i%2].CollectEgress(w.Context(), sandbox.Docker)
			}()
		}
		for range cap(failed) {
			if err := <-failed; err != nil {
				t.Error(err)
			}
		}
		if n := len(w.egress()); n != lines {
			t.Errorf("%d lines made %d events", lines, n)
		}
	})
}

func TestAFloodOfAttemptsIsCountedAndLeavesTheLedgerToOthers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(func(p *sandbox.PutEnvironment) { p.Network = sandbox.NetworkRestricted })
		flooding, quiet := w.acquire(ann), w.acquire(bob)
		const lines = 25_000
		for i := range lines {
			w.backend.LogEgress(w.gatewayRef(),
				tried(flooding.SandboxID, sandbox.EgressClosed, sandbox.EgressRefused, fmt.Sprintf("a-%d", i), "evil.test"))
		}
		w.backend.LogEgress(w.gatewayRef(),
			sandbox.EgressRecord{Kind: sandbox.EgressDropped, SandboxID: flooding.SandboxID, Count: 7},
			tried(quiet.SandboxID, sandbox.EgressOpened, sandbox.EgressAllowed, "b-1", "good.test"))
		w.collectEgress()

		var single, summed, unlogged int64
		events, err := w.engine.ListEvents(w.Context(), sandbox.EventFilter{SandboxID: flooding.SandboxID, Type: "egress.*"})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Type != sandbox.EventEgressSummary {
				single++
				continue
			}
			var s sandbox.EgressSummary
			if err := json.Unmarshal(e.Data, &s); err != nil {
				t.Fatal(err)
			}
			summed, unlogged = summed+s.Denied, unlogged+s.Unlogged
		}
		if single < 100 || single > 400 || single+summed != lines || unlogged != 7 || len(events) > 410 {
			t.Errorf("%d attempts are %d events of their own and %d in summaries, %d were left out before; %d events in all",
				lines, single, summed, unlogged, len(events))
		}
		if got := w.egress(); !slices.Contains(got, "egress.allowed good.test 0/0") {
			t.Error("the quiet sandbox's attempt is not recorded")
		}
		// After a rest it is recorded again.
		later(time.Minute)
		w.backend.LogEgress(w.gatewayRef(),
			tried(flooding.SandboxID, sandbox.EgressClosed, sandbox.EgressRefused, "later", "later.test"))
		w.collectEgress()
		if got := w.egress(); got[len(got)-1] != "egress.denied later.test 0/0" {
			t.Errorf("after a rest the last event is %s", got[len(got)-1])
		}
	})
}

func TestWhatWasNotReadInTimeIsSaidToBeLost(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(func(p *sandbox.PutEnvironment) { p.Network = sandbox.NetworkRestricted })
		l := w.acquire(ann)
		line := func(run, number int64) {
			r := tried(l.SandboxID, sandbox.EgressClosed, sandbox.EgressRefused,
				fmt.Sprintf("a-%d-%d", run, number), "evil.test")
			r.Run, r.Line = run, number
			w.backend.LogEgress(w.gatewayRef(), r)
		}
		line(5, 1)
		w.collectEgress()
		line(5, 4)
		line(9, 3)
		w.collectEgress()
		w.wantEgress("egress.denied evil.test 0/0", "egress.lost", "egress.denied evil.test 0/0",
			"egress.denied evil.test 0/0")
		events, err := w.engine.ListEvents(w.Context(), sandbox.EventFilter{Type: "egress.lost"})
		if err != nil || len(events) != 1 || string(events[0].Data) != `{"lines":4}` {
			t.Errorf("%+v, %v", events, err)
		}
	})
}

func TestTheLoopRecordsAttemptsAlsoOfASandboxThatIsGone(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(func(p *sandbox.PutEnvironment) { p.Network = sandbox.NetworkRestricted })
		l := w.acquire(ann)
		w.backend.Fail(fake.OpEgressLog, sandbox.Errorf(sandbox.Unavailable, "the gateway is away"))
		w.startLoop()
		if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
			t.Fatal(err)
		}
		w.backend.LogEgress(w.gatewayRef(),
			tried(l.SandboxID, sandbox.EgressClosed, sandbox.EgressRefused, "a-1", "evil.test"))
		later(20 * time.Second)
		w.wantEgress()
		w.backend.Fail(fake.OpEgressLog, nil)
		later(6 * time.Second)
		w.wantEgress("egress.denied evil.test 0/0")
	})
}
