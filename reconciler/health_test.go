package reconciler_test

import (
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

func TestUsageAndHealthOfARealSandbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.environment("catan")
	ref := sandbox.LeaseRef{ID: w.acquire(agent(0), "catan").ID}
	w.exec(ref.ID, "sh", "-c", "head -c 5000000 /dev/zero > /data/f")
	look := func(wantState sandbox.State) sandbox.LeaseUsage {
		t.Helper()
		h, err := w.service.LeaseHealth(t.Context(), ref)
		if err != nil || !h.Healthy || !h.BackendReachable || h.State != wantState {
			t.Errorf("its health is %+v: %v", h, err)
		}
		u, err := w.service.LeaseUsage(t.Context(), ref)
		if err != nil || u.State != wantState {
			t.Errorf("it uses %+v: %v", u, err)
		}
		return u
	}
	if u := look(sandbox.StateRunning); u.CPUTime <= 0 || u.MemoryBytes <= 0 || u.PIDs < 1 || u.Disk == nil || u.Disk.Bytes < 5_000_000 {
		t.Errorf("awake it uses %+v, disk %+v", u, u.Disk)
	}
	if _, err := w.service.Sleep(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if u := look(sandbox.StatePaused); u.MemoryBytes <= 0 || u.Disk != nil {
		t.Errorf("asleep it uses %+v", u)
	}
	if l := w.lease(ref.ID); l.Phase != sandbox.PhaseAsleep {
		t.Errorf("after a look it is %s", l.Phase)
	}
}
