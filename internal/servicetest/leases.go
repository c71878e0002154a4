package servicetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var leaseTests = []test{
	{"AcquireGivesALease", acquireGivesALease},
	{"FiftyCallersGetOneLease", fiftyCallersGetOneLease},
	{"AcquireConflictsNameTheirCause", acquireConflictsNameTheirCause},
	{"AcquireNamesWrongFields", acquireNamesWrongFields},
	{"GenerationsFollowEachOther", generationsFollowEachOther},
	{"RenewMovesTheEnd", renewMovesTheEnd},
	{"RenewChangesSettings", renewChangesSettings},
	{"EndedLeaseCannotBeUsed", endedLeaseCannotBeUsed},
	{"RequestsAreFenced", requestsAreFenced},
	{"ReleaseIsIdempotent", releaseIsIdempotent},
	{"AReleaseThatIsStartedEndsTheLease", aReleaseIsStarted},
	{"FailedDestroyStaysVisibleAndIsRetried", failedDestroyStaysVisibleAndIsRetried},
	{"MaxLifetimeEndsARenewedLease", maxLifetimeEndsARenewedLease},
	{"LeasesAreListedByPages", leasesAreListedByPages},
	{"UnknownLeaseIsNotFound", unknownLeaseIsNotFound},
	{"BackendAwayIsUnavailable", backendAwayIsUnavailable},
	{"AcquireNeedNotWait", acquireNeedNotWait},
}

func acquireNeedNotWait(w *world) {
	w.environment()
	a := sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: owner, NoWait: true}
	w.HoldSpawns(true)
	first := must(w.Service.Acquire(w.Context(), a))(w)
	w.wantLease(first.Lease, 1, sandbox.LeasePending, "")
	w.wantStatus(sandbox.SandboxPending, "", "")
	again := must(w.Service.Acquire(w.Context(), a))(w)
	if !first.IsNew || again.IsNew || again.Lease.SandboxID != first.Lease.SandboxID ||
		again.Lease.Status != sandbox.LeasePending {
		w.Errorf("at first it is %+v, and then %+v", first, again)
	}
	w.HoldSpawns(false)
	a.NoWait = false // a waiting caller gets the same lease
	ready := must(w.Service.Acquire(w.Context(), a))(w)
	w.wantLease(ready.Lease, 1, sandbox.LeaseActive, "")
	a.NoWait = true
	if got := must(w.Service.Acquire(w.Context(), a))(w); got.Lease.Status != sandbox.LeaseActive ||
		got.Lease.SandboxID != first.Lease.SandboxID || w.Running() != 1 {
		w.Errorf("a ready lease is %+v, and %d sandboxes run", got, w.Running())
	}
	_, err := w.Service.Acquire(w.Context(),
		sandbox.Acquire{AgentDID: ann, EnvironmentID: "no-such-game", Owner: owner, NoWait: true})
	w.wantError(err, sandbox.NotFound, "")
}

func acquireGivesALease(w *world) {
	w.environment()
	first := must(w.Service.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: owner}))(w)
	l := first.Lease
	w.wantLease(l, 1, sandbox.LeaseActive, "")
	if !first.IsNew || l.ID != annsLease || l.AgentDID != ann || l.EnvironmentID != game || l.Owner != owner ||
		len(l.SandboxID) != sandbox.SandboxIDLength ||
		l.Phase != sandbox.PhaseAwake || l.Backend != sandbox.Docker || l.Instance == "" ||
		l.Image != "player" || l.Resources != sandbox.DefaultResources || l.TTL != sandbox.DefaultTTL || l.LastSequence < 2 {
		w.Errorf("acquired %+v", first)
	}
	if want := w.Now().Add(sandbox.DefaultTTL.D()); !l.ExpiresAt.Equal(want) || !l.LeasedAt.Equal(w.Now()) {
		w.Errorf("leased at %v until %v, want until %v", l.LeasedAt, l.ExpiresAt, want)
	}
	second := must(w.Service.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: owner}))(w)
	if second.IsNew || second.Lease.SandboxID != l.SandboxID {
		w.Errorf("the second acquire gave %+v", second)
	}
	if got := w.lease(ann); got.SandboxID != l.SandboxID || got.Status != sandbox.LeaseActive {
		w.Errorf("the lease reads as %+v", got)
	}
	if n := w.Running(); n != 1 {
		w.Errorf("%d sandboxes run", n)
	}
}

func fiftyCallersGetOneLease(w *world) {
	w.environment()
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		created int
		boxes   = map[string]int{}
	)
	for range 50 {
		wg.Go(func() {
			got, err := w.Service.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: owner})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				w.Error(err)
				return
			}
			boxes[got.Lease.SandboxID]++
			if got.IsNew {
				created++
			}
			if got.Lease.Status != sandbox.LeaseActive {
				w.Errorf("a caller got a lease that is %s", got.Lease.Status)
			}
		})
	}
	wg.Wait()
	if created != 1 || len(boxes) != 1 || w.Running() != 1 {
		w.Errorf("%d callers made the lease, on sandboxes %v, and %d run", created, boxes, w.Running())
	}
}

func acquireConflictsNameTheirCause(w *world) {
	w.environment()
	w.acquire(ann)
	_, err := w.Service.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "somebody"})
	w.wantError(err, sandbox.Conflict, sandbox.ReasonOtherOwner)
	ttl, never := sandbox.Duration(time.Hour), sandbox.Duration(0)
	_, err = w.Service.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: owner,
		Settings: sandbox.LeaseSettings{TTL: &ttl, SleepAfter: &never, ExpiryConditions: []string{"game.won"}}})
	w.wantError(err, sandbox.Conflict, sandbox.ReasonOtherSettings, "settings.ttl", "settings.sleep_after",
		"settings.expiry_conditions")
	w.wantLease(w.lease(ann), 1, sandbox.LeaseActive, "")
}

func acquireNamesWrongFields(w *world) {
	w.environment()
	_, err := w.Service.Acquire(w.Context(), sandbox.Acquire{AgentDID: "ann", EnvironmentID: "Catan", Owner: owner})
	w.wantError(err, sandbox.Invalid, "", "agent_did", "environment_id")
	_, err = w.Service.Acquire(w.Context(), sandbox.Acquire{AgentDID: " DID:PLC:Ann", EnvironmentID: game, Owner: owner})
	if w.wantError(err, sandbox.Invalid, "", "agent_did"); !strings.Contains(err.Error(), "normal form, did:plc:Ann") {
		w.Errorf("a DID that is not in its normal form returns %v", err)
	}
	short, long := sandbox.Duration(time.Millisecond), sandbox.Duration(9000*time.Hour)
	_, err = w.Service.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: owner,
		Settings: sandbox.LeaseSettings{
			TTL:              &short,
			SleepAfter:       &short,
			MaxLifetime:      &long,
			ExpiryConditions: []string{"a.b", "over"},
		}})
	w.wantError(err, sandbox.Invalid, "", "settings.ttl", "settings.sleep_after", "settings.max_lifetime",
		"settings.expiry_conditions[1]")
	if n := w.Running(); n != 0 {
		w.Errorf("%d sandboxes run", n)
	}
}

func generationsFollowEachOther(w *world) {
	w.environment()
	seen := map[string]bool{}
	for generation := range int64(3) {
		l := w.acquire(ann)
		w.wantLease(l, generation+1, sandbox.LeaseActive, "")
		if seen[l.SandboxID] {
			w.Errorf("sandbox id %s was issued twice", l.SandboxID)
		}
		seen[l.SandboxID] = true
		must(w.Service.Release(w.Context(), sandbox.LeaseRef{ID: annsLease, Generation: l.Generation, Owner: owner}))(w)
	}
	w.wantLease(w.lease(ann), 3, sandbox.LeaseDestroyed, sandbox.EndedByRelease)
}

func renewMovesTheEnd(w *world) {
	w.environment()
	w.acquire(ann)
	w.Advance(20 * time.Hour)
	l := must(w.Service.Renew(w.Context(),
		sandbox.Renew{LeaseRef: sandbox.LeaseRef{ID: annsLease, Owner: owner, Generation: 1}}))(w)
	if want := w.Now().Add(24 * time.Hour); !l.ExpiresAt.Equal(want) || !l.LastActivity.Equal(w.Now()) {
		w.Errorf("renewed at %v until %v, want until %v", l.LastActivity, l.ExpiresAt, want)
	}
	w.Advance(23 * time.Hour)
	w.wantLease(w.lease(ann), 1, sandbox.LeaseActive, "")
	w.Advance(time.Hour)
	w.wantLease(w.lease(ann), 1, sandbox.LeaseDestroyed, sandbox.EndedByTTL)
}

func renewChangesSettings(w *world) {
	w.environment()
	w.acquire(ann)
	ttl, other := sandbox.Duration(90*time.Minute), sandbox.Duration(time.Hour)
	ref := sandbox.LeaseRef{ID: annsLease, Owner: owner}
	l := must(w.Service.Renew(w.Context(),
		sandbox.Renew{LeaseRef: ref, Settings: &sandbox.LeaseSettings{TTL: &ttl, ExpiryConditions: []string{"game.won"}}}))(w)
	if l.TTL != ttl || *l.Settings.TTL != ttl || !slices.Equal(l.ExpiryConditions, []string{"game.won"}) ||
		l.Settings.MaxLifetime != nil {
		w.Errorf("the renewed lease is %+v", l)
	}
	_, err := w.Service.Renew(w.Context(),
		sandbox.Renew{LeaseRef: ref, Settings: &sandbox.LeaseSettings{MaxLifetime: &other}})
	w.wantError(err, sandbox.Invalid, "", "settings.max_lifetime")
	short := sandbox.Duration(1)
	_, err = w.Service.Renew(w.Context(), sandbox.Renew{LeaseRef: ref, Settings: &sandbox.LeaseSettings{TTL: &short}})
	w.wantError(err, sandbox.Invalid, "", "settings.ttl")
	l = must(w.Service.Renew(w.Context(), sandbox.Renew{LeaseRef: ref, Settings: &sandbox.LeaseSettings{}}))(w)
	if l.TTL != sandbox.DefaultTTL || !slices.Equal(l.ExpiryConditions, []string{"game.finished"}) {
		w.Errorf("without settings of its own the lease has ttl %s, conditions %q", l.TTL, l.ExpiryConditions)
	}
}

func endedLeaseCannotBeUsed(w *world) {
	w.environment()
	w.acquire(ann)
	w.FailKills(true)
	w.Advance(24*time.Hour + time.Second)
	w.wantLease(w.lease(ann), 1, sandbox.LeaseExpired, sandbox.EndedByTTL)
	ref := sandbox.LeaseRef{ID: annsLease}
	_, err := w.Service.Renew(w.Context(), sandbox.Renew{LeaseRef: ref})
	w.wantError(err, sandbox.LeaseEnded, "")
	_, err = w.Service.Exec(w.Context(), ref, sandbox.ExecRequest{Command: []string{"echo"}})
	w.wantError(err, sandbox.LeaseEnded, "")
	_, err = w.Service.Sleep(w.Context(), ref)
	w.wantError(err, sandbox.LeaseEnded, "")
	_, err = w.Service.Wake(w.Context(), ref)
	w.wantError(err, sandbox.LeaseEnded, "")
	_, err = w.Service.ReadFiles(w.Context(), ref, "/workspace")
	w.wantError(err, sandbox.LeaseEnded, "")
	w.wantError(w.Service.WriteFiles(w.Context(), ref, "/workspace", archive(w, "a", "b")), sandbox.LeaseEnded, "")
}

func requestsAreFenced(w *world) {
	w.environment()
	w.acquire(ann)
	for _, fence := range []struct {
		ref    sandbox.LeaseRef
		reason sandbox.Reason
	}{
		{sandbox.LeaseRef{ID: annsLease, Generation: 2}, sandbox.ReasonOtherGeneration},
		{sandbox.LeaseRef{ID: annsLease, Owner: "somebody"}, sandbox.ReasonOtherOwner},
	} {
		_, err := w.Service.Renew(w.Context(), sandbox.Renew{LeaseRef: fence.ref})
		w.wantError(err, sandbox.Conflict, fence.reason)
		_, err = w.Service.Release(w.Context(), fence.ref)
		w.wantError(err, sandbox.Conflict, fence.reason)
		_, err = w.Service.Exec(w.Context(), fence.ref, sandbox.ExecRequest{Command: []string{"echo"}})
		w.wantError(err, sandbox.Conflict, fence.reason)
		_, err = w.Service.Sleep(w.Context(), fence.ref)
		w.wantError(err, sandbox.Conflict, fence.reason)
		_, err = w.Service.ReadFiles(w.Context(), fence.ref, "/workspace")
		w.wantError(err, sandbox.Conflict, fence.reason)
	}
	w.wantLease(w.lease(ann), 1, sandbox.LeaseActive, "")
}

func releaseIsIdempotent(w *world) {
	w.environment()
	w.acquire(ann)
	var ended time.Time
	for range 2 {
		l := must(w.Service.Release(w.Context(), sandbox.LeaseRef{ID: annsLease, Generation: 1, Owner: owner}))(w)
		w.wantLease(l, 1, sandbox.LeaseDestroyed, sandbox.EndedByRelease)
		if ended.IsZero() {
			ended = l.EndedAt
		}
		if !l.EndedAt.Equal(ended) || l.Phase != sandbox.PhaseGone {
			w.Errorf("released twice, it ended at %v and %v, phase %s", ended, l.EndedAt, l.Phase)
		}
		w.Advance(time.Minute)
	}
	if n := w.Running(); n != 0 {
		w.Errorf("%d sandboxes are left", n)
	}
}

func aReleaseIsStarted(w *world) {
	w.environment()
	w.acquire(ann)
	_, err := w.Service.StartRelease(w.Context(), sandbox.LeaseRef{ID: annsLease, Generation: 2, Owner: owner})
	w.wantError(err, sandbox.Conflict, sandbox.ReasonOtherGeneration)
	w.FailKills(true) // no caller waits for the end of the sandbox
	for range 2 {
		l := must(w.Service.StartRelease(w.Context(), sandbox.LeaseRef{ID: annsLease, Generation: 1, Owner: owner}))(w)
		w.wantLease(l, 1, sandbox.LeaseExpired, sandbox.EndedByRelease)
	}
	w.FailKills(false)
	w.Advance(5 * time.Minute)
	w.wantLease(w.lease(ann), 1, sandbox.LeaseDestroyed, sandbox.EndedByRelease)
	l := must(w.Service.StartRelease(w.Context(), sandbox.LeaseRef{ID: annsLease}))(w)
	w.wantLease(l, 1, sandbox.LeaseDestroyed, sandbox.EndedByRelease)
}

func failedDestroyStaysVisibleAndIsRetried(w *world) {
	w.environment()
	w.acquire(ann)
	w.FailKills(true)
	_, err := w.Service.Release(w.Context(), sandbox.LeaseRef{ID: annsLease})
	w.wantError(err, sandbox.Unavailable, "")
	l := w.lease(ann)
	w.wantLease(l, 1, sandbox.LeaseExpired, sandbox.EndedByRelease)
	if l.Attempts == 0 || l.LastError == "" {
		w.Errorf("the failure does not show: %d attempts, last error %q", l.Attempts, l.LastError)
	}
	w.wantLease(w.acquire(ann), 2, sandbox.LeaseActive, "") // the next life does not wait for the end of the previous one
	w.Advance(5 * time.Minute)
	if n := w.Running(); n != 2 {
		w.Errorf("%d sandboxes run, want the old and the new one", n)
	}
	w.FailKills(false)
	w.Advance(time.Minute)
	if n := w.Running(); n != 1 {
		w.Errorf("%d sandboxes run, want the new one", n)
	}
}

func maxLifetimeEndsARenewedLease(w *world) {
	w.environment(func(p *sandbox.PutEnvironment) { p.MaxLifetime = sandbox.Duration(30 * time.Hour) })
	w.acquire(ann)
	w.Advance(20 * time.Hour)
	l := must(w.Service.Renew(w.Context(), sandbox.Renew{LeaseRef: sandbox.LeaseRef{ID: annsLease}}))(w)
	if want := w.Now().Add(10 * time.Hour); !l.ExpiresAt.Equal(want) {
		w.Errorf("it may live until %v, want %v", l.ExpiresAt, want)
	}
	w.Advance(10 * time.Hour)
	w.wantLease(w.lease(ann), 1, sandbox.LeaseDestroyed, sandbox.EndedByMaxLifetime)
}

func leasesAreListedByPages(w *world) {
	w.environment()
	var all []string
	for i := range 5 {
		all = append(all, w.acquire(fmt.Sprintf("did:plc:agent%d", i)).ID)
	}
	must(w.Service.Release(w.Context(), sandbox.LeaseRef{ID: all[4]}))(w)
	w.Pass(time.Minute)
	must(w.Service.Renew(w.Context(), sandbox.Renew{LeaseRef: sandbox.LeaseRef{ID: all[1]}}))(w)
	list := func(f sandbox.LeaseFilter) (ids []string) {
		w.Helper()
		for _, l := range must(w.Service.ListLeases(w.Context(), f))(w) {
			ids = append(ids, l.ID)
		}
		return ids
	}
	for _, c := range []struct {
		filter sandbox.LeaseFilter
		want   []string
	}{
		{sandbox.LeaseFilter{}, all},
		{sandbox.LeaseFilter{EnvironmentID: game}, all},
		{sandbox.LeaseFilter{EnvironmentID: "other"}, nil},
		{sandbox.LeaseFilter{AgentDID: "did:plc:agent2"}, all[2:3]},
		{sandbox.LeaseFilter{Status: sandbox.LeaseActive}, all[:4]},
		{sandbox.LeaseFilter{Status: sandbox.LeaseDestroyed}, all[4:]},
		{sandbox.LeaseFilter{Limit: 2}, all[:2]},
		{sandbox.LeaseFilter{Limit: 2, After: all[1]}, all[2:4]},
		{sandbox.LeaseFilter{Limit: 2, After: all[3]}, all[4:]},
		{sandbox.LeaseFilter{After: all[4]}, nil},
		{sandbox.LeaseFilter{Search: "AGENT3"}, all[3:4]},
		{sandbox.LeaseFilter{Search: "2::" + game[:2]}, all[2:3]},
		{sandbox.LeaseFilter{Search: "plc_agent"}, nil},
		{sandbox.LeaseFilter{Search: "%"}, nil},
		{sandbox.LeaseFilter{Sort: "-id", Limit: 2, After: all[4]}, []string{all[3], all[2]}},
		{sandbox.LeaseFilter{Sort: sandbox.SortByEnvironment, Limit: 2, After: all[0]}, all[1:3]},
		{sandbox.LeaseFilter{Sort: "-leased", Limit: 2, After: all[4]}, []string{all[3], all[2]}},
		{sandbox.LeaseFilter{Sort: "-activity", Limit: 1, Status: sandbox.LeaseActive}, all[1:2]},
		{sandbox.LeaseFilter{Sort: sandbox.SortByExpiry, Status: sandbox.LeaseActive, Limit: 2, After: all[2]},
			[]string{all[3], all[1]}},
	} {
		if got := list(c.filter); !slices.Equal(got, c.want) {
			w.Errorf("%+v lists %q, want %q", c.filter, got, c.want)
		}
	}
	for _, by := range []sandbox.LeaseSort{sandbox.SortByActivity, sandbox.SortByExpiry} {
		f := sandbox.LeaseFilter{Status: sandbox.LeaseActive, Sort: by, Limit: 1}
		order := list(sandbox.LeaseFilter{Status: sandbox.LeaseActive, Sort: by})
		first := must(w.Service.ListLeases(w.Context(), f))(w)
		f.After = f.Next(first[0])
		w.Advance(time.Second)
		w.acquire(first[0].AgentDID) // moves to the end
		if got := list(f); !slices.Equal(got, order[1:2]) {
			w.Errorf("by %s, after a lease that has moved %q follows, want %q", by, got, order[1:2])
		}
	}
	_, err := w.Service.ListLeases(w.Context(), sandbox.LeaseFilter{Status: "activ"})
	w.wantError(err, sandbox.Invalid, "", "status")
	_, err = w.Service.ListLeases(w.Context(), sandbox.LeaseFilter{Sort: "cost"})
	w.wantError(err, sandbox.Invalid, "", "sort")
	_, err = w.Service.ListLeases(w.Context(), sandbox.LeaseFilter{Sort: sandbox.SortByActivity, After: "did:plc:x::y"})
	w.wantError(err, sandbox.Invalid, "", "after")
}

func unknownLeaseIsNotFound(w *world) {
	w.environment()
	_, err := w.Service.GetLease(w.Context(), annsLease)
	w.wantError(err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	_, err = w.Service.ObserveLease(w.Context(), annsLease)
	w.wantError(err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	_, err = w.Service.Release(w.Context(), sandbox.LeaseRef{ID: annsLease})
	w.wantError(err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	_, err = w.Service.Exec(w.Context(), sandbox.LeaseRef{ID: annsLease}, sandbox.ExecRequest{Command: []string{"echo"}})
	w.wantError(err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	for _, id := range []string{
		"", "..", "catan-7", "did:plc:ann", "ann::catan-7", "did:plc:ann::Catan 7", "did:plc:a/b::catan-7",
	} {
		_, err := w.Service.GetLease(w.Context(), id)
		w.wantError(err, sandbox.Invalid, "")
	}
}

func backendAwayIsUnavailable(w *world) {
	w.environment()
	w.acquire(ann)
	w.BackendAway(true)
	_, err := w.Service.ObserveLease(w.Context(), annsLease)
	w.wantError(err, sandbox.Unavailable, "")
	_, err = w.Service.Acquire(w.Context(), sandbox.Acquire{AgentDID: bob, EnvironmentID: game, Owner: owner})
	w.wantError(err, sandbox.Unavailable, "")
	w.wantLease(w.lease(ann), 1, sandbox.LeaseActive, "") // an unreachable sandbox is not gone
	w.BackendAway(false)
	w.Advance(time.Minute)
	w.wantLease(w.acquire(bob), 1, sandbox.LeaseActive, "")
	w.wantLease(w.lease(ann), 1, sandbox.LeaseActive, "")
}
