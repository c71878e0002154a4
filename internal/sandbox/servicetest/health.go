package servicetest

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

var healthTests = []test{
	{"UsageIsSampledAndWakesNothing", usageIsSampledAndWakesNothing},
	{"HealthSaysWhatIsWrong", healthSaysWhatIsWrong},
}

func usageIsSampledAndWakesNothing(w *world) {
	w.environment(func(p *sandbox.PutEnvironment) { p.SleepMode = sandbox.SleepStop })
	before := w.acquire(ann)
	ref := sandbox.LeaseRef{ID: annsLease}
	w.write("f", "12345", 0)
	w.Pass(time.Minute)
	u := must(w.Service.LeaseUsage(w.Context(), ref))(w)
	if u.SandboxID != before.SandboxID || u.State != sandbox.StateRunning || u.PIDs < 1 || u.MemoryBytes < 1 || u.Limits != before.Resources || u.Disk == nil || u.Disk.Bytes < 5 || u.Disk.Files < 1 || !u.Disk.Complete {
		w.Errorf("awake it uses %+v, disk %+v", u, u.Disk)
	}
	if l := w.lease(ann); !l.LastActivity.Before(w.Now()) {
		w.Error("a sample is activity")
	}
	must(w.Service.Sleep(w.Context(), ref))(w)
	if u = must(w.Service.LeaseUsage(w.Context(), ref))(w); u.State != sandbox.StateStopped || u.PIDs != 0 || u.Disk != nil {
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

func healthSaysWhatIsWrong(w *world) {
	w.environment()
	l := w.acquire(ann)
	ref := sandbox.LeaseRef{ID: annsLease}
	health := func(want bool, reachable bool) sandbox.LeaseHealth {
		w.Helper()
		h := must(w.Service.LeaseHealth(w.Context(), ref))(w)
		if h.Healthy != want || h.Healthy != (h.Problem == "") || h.BackendReachable != reachable || h.SandboxID != l.SandboxID {
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
	health(false, false) // it has ended, and nobody is asked
	_, err := w.Service.LeaseHealth(w.Context(), sandbox.LeaseRef{ID: sandbox.LeaseID(bob, game)})
	w.wantError(err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
}
