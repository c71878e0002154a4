package servicetest

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var healthTests = []test{
	{"UsageIsSampledAndWakesNothing", usageIsSampledAndWakesNothing},
	{"UsageIsKeptForADay", usageIsKeptForADay},
	{"MeansOfUsageSpanNoGapAndNoStart", meansOfUsageSpanNoGapAndNoStart},
	{"HealthSaysWhatIsWrong", healthSaysWhatIsWrong},
}

func usageIsSampledAndWakesNothing(w *world) {
	w.environment(func(p *sandbox.PutEnvironment) { p.SleepMode = sandbox.SleepStop })
	before := w.acquire(ann)
	ref := sandbox.LeaseRef{ID: annsLease}
	w.write("f", "12345", 0)
	w.Pass(time.Minute)
	u := must(w.Service.LeaseUsage(w.Context(), ref))(w)
	if u.SandboxID != before.SandboxID || u.State != sandbox.StateRunning || u.PIDs < 1 || u.MemoryBytes < 1 ||
		u.Limits != before.Resources || u.Disk == nil || u.Disk.Bytes < 5 || u.Disk.Files < 1 || !u.Disk.Complete {
		w.Errorf("awake it uses %+v, disk %+v", u, u.Disk)
	}
	if l := w.lease(ann); !l.LastActivity.Before(w.Now()) {
		w.Error("a sample is activity")
	}
	must(w.Service.Sleep(w.Context(), ref))(w)
	if u = must(w.Service.LeaseUsage(w.Context(), ref))(w); u.State != sandbox.StateStopped ||
		u.PIDs != 0 || u.Disk != nil {
		w.Errorf("asleep it uses %+v", u)
	}
	if h := must(w.Service.LeaseHealth(w.Context(), ref))(w); !h.Healthy || h.Phase != sandbox.PhaseAsleep {
		w.Errorf("asleep its health is %+v", h)
	}
	if l := w.lease(ann); l.Phase != sandbox.PhaseAsleep {
		w.Errorf("after a look it is %s", l.Phase)
	}
	_, err := w.Service.LeaseUsage(w.Context(), sandbox.LeaseRef{ID: annsLease, Generation: 9})
	w.wantError(err, sandbox.Conflict, sandbox.ReasonOtherGeneration)
	_, err = w.Service.LeaseUsage(w.Context(), sandbox.LeaseRef{ID: sandbox.LeaseID(bob, game)})
	w.wantError(err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	must(w.Service.Release(w.Context(), ref))(w)
	_, err = w.Service.LeaseUsage(w.Context(), ref)
	w.wantError(err, sandbox.LeaseEnded, "")
}

// history returns the retained usage of ann's sandbox, or what a query selects.
func (w *world) history(change ...func(q *sandbox.UsageHistoryQuery)) []sandbox.UsageSample {
	w.Helper()
	q := sandbox.UsageHistoryQuery{LeaseRef: sandbox.LeaseRef{ID: annsLease}}
	for _, c := range change {
		c(&q)
	}
	h := must(w.Service.LeaseUsageHistory(w.Context(), q))(w)
	if l := w.lease(ann); h.LeaseID != l.ID || h.Generation != l.Generation || h.SandboxID != l.SandboxID ||
		h.Limits != l.Resources {
		w.Errorf("the history is of %s, generation %d, sandbox %s, limits %+v; want that of %+v",
			h.LeaseID, h.Generation, h.SandboxID, h.Limits, l)
	}
	return h.Samples
}

func usageIsKeptForADay(w *world) {
	w.environment()
	l := w.acquire(ann)
	if had := w.history(); len(had) != 0 {
		w.Errorf("before a look %+v is kept", had)
	}
	began := w.Now()
	for range 6 { // samples at 0 s, 30 s, ...; every second one is kept
		w.Advance(30 * time.Second)
		w.Burn(l.SandboxID, 15*time.Second)
	}
	all := w.history()
	if len(all) != 3 {
		w.Fatalf("%d samples of three minutes are kept: %+v", len(all), all)
	}
	for i, s := range all {
		wantCPU := time.Duration(i) * 30 * time.Second
		if !s.At.Equal(began.Add(time.Duration(i)*time.Minute)) || s.CPUTime.D() != wantCPU ||
			s.MemoryBytes != 1<<20 || s.PIDs != 1 {
			w.Errorf("sample %d is %+v", i, s)
		}
		if i == 0 && s.CPUMillis != nil || i > 0 && (s.CPUMillis == nil || *s.CPUMillis != 500) {
			w.Errorf("sample %d is of a mean of %v", i, s.CPUMillis)
		}
	}
	now := must(w.Service.LeaseUsage(w.Context(), sandbox.LeaseRef{ID: annsLease}))(w)
	if now.CPUPercent == nil || *now.CPUPercent != 50 {
		w.Errorf("since the last sample it used %v %% of a core: %+v", now.CPUPercent, now)
	}
	some := w.history(func(q *sandbox.UsageHistoryQuery) { q.From, q.To = all[1].At, all[2].At })
	if len(some) != 1 || !some[0].At.Equal(all[1].At) || some[0].CPUMillis == nil || *some[0].CPUMillis != 500 {
		w.Errorf("the second sample alone is %+v", some)
	}
	_, err := w.Service.LeaseUsageHistory(w.Context(),
		sandbox.UsageHistoryQuery{LeaseRef: sandbox.LeaseRef{ID: annsLease}, From: all[2].At, To: all[1].At})
	w.wantError(err, sandbox.Invalid, "", "from")
	_, err = w.Service.LeaseUsageHistory(w.Context(),
		sandbox.UsageHistoryQuery{LeaseRef: sandbox.LeaseRef{ID: annsLease, Generation: 9}})
	w.wantError(err, sandbox.Conflict, sandbox.ReasonOtherGeneration)
	_, err = w.Service.LeaseUsageHistory(w.Context(),
		sandbox.UsageHistoryQuery{LeaseRef: sandbox.LeaseRef{ID: sandbox.LeaseID(bob, game)}})
	w.wantError(err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)

	must(w.Service.Release(w.Context(), sandbox.LeaseRef{ID: annsLease}))(w)
	if kept := w.history(); len(kept) != 3 {
		w.Errorf("of the lease that has ended %+v is kept", kept)
	}
	w.Pass(began.Add(sandbox.UsageKept + 30*time.Second).Sub(w.Now()))
	w.Purge(cleanupTTL)
	if kept := w.history(); len(kept) != 2 || !kept[0].At.Equal(all[1].At) {
		w.Errorf("after a day %+v is kept", kept)
	}
	w.Purge(time.Hour) // with the sandbox
	if l := w.lease(ann); l.PurgedAt.IsZero() || len(w.history()) != 0 {
		w.Errorf("of the lease that was purged at %v %+v is kept", l.PurgedAt, w.history())
	}
}

func meansOfUsageSpanNoGapAndNoStart(w *world) {
	w.environment(func(p *sandbox.PutEnvironment) { p.SleepMode = sandbox.SleepStop })
	l := w.acquire(ann)
	ref := sandbox.LeaseRef{ID: annsLease}
	// look inspects the sandbox, and returns the number of retained samples and whether the last one has a
	// mean.
	look := func() (n int, isMean bool) {
		w.Advance(0)
		all := w.history()
		return len(all), len(all) > 0 && all[len(all)-1].CPUMillis != nil
	}
	want := func(what string, wantN int, wantMean bool) {
		w.Helper()
		if n, isMean := look(); n != wantN || isMean != wantMean {
			w.Errorf("%s: %d samples, the last with a mean: %t; want %d, %t", what, n, isMean, wantN, wantMean)
		}
	}
	want("the first", 1, false)
	w.Burn(l.SandboxID, time.Second)
	w.Pass(2 * time.Minute)
	want("one look was missed", 2, true)
	w.BackendAway(true)
	w.Pass(time.Minute)
	want("its backend is away", 2, true)
	w.BackendAway(false)
	w.Pass(sandbox.MaxUsageGap)
	want("after a gap", 3, false)
	w.Pass(time.Minute)
	want("after the gap", 4, true)
	must(w.Service.Sleep(w.Context(), ref))(w)
	w.Pass(time.Minute)
	want("it sleeps", 4, true)
	must(w.Service.Wake(w.Context(), ref))(w)
	want("it has started anew", 5, false)
	w.Burn(l.SandboxID, time.Second)
	w.Pass(time.Minute)
	want("it runs on", 6, true)
}

func healthSaysWhatIsWrong(w *world) {
	w.environment()
	l := w.acquire(ann)
	ref := sandbox.LeaseRef{ID: annsLease}
	health := func(want bool, reachable bool) sandbox.LeaseHealth {
		w.Helper()
		h := must(w.Service.LeaseHealth(w.Context(), ref))(w)
		if h.Healthy != want || h.Healthy != (h.Problem == "") || h.BackendReachable != reachable ||
			h.SandboxID != l.SandboxID {
			w.Errorf("health is %+v, want %t, its backend reachable %t", h, want, reachable)
		}
		return h
	}
	if h := health(true, true); h.State != sandbox.StateRunning || !h.CheckedAt.Equal(w.Now()) {
		w.Errorf("health is %+v", h)
	}
	w.BackendAway(true)
	health(false, false)
	w.BackendAway(false)
	health(true, true)
	w.Remove(l.SandboxID)
	health(false, true)
	if now := w.lease(ann); now.Status != sandbox.LeaseActive {
		w.Errorf("a look at its health has made it %s", now.Status)
	}
	w.Advance(time.Minute)
	health(false, false) // it has ended, and the backend is not asked
	_, err := w.Service.LeaseHealth(w.Context(), sandbox.LeaseRef{ID: sandbox.LeaseID(bob, game)})
	w.wantError(err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
}
