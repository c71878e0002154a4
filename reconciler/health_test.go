package reconciler_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
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
	if u := look(sandbox.StateRunning); u.CPUTime <= 0 || u.MemoryBytes <= 0 || u.PIDs < 1 || u.Disk == nil ||
		u.Disk.Bytes < 5_000_000 {
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

func TestMetricsOfARealReconciler(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.environment("catan")
	id := w.acquire(agent(0), "catan").ID
	w.wantMetric(`sandbox_sandboxes{backend="docker",phase="awake",pooled="false"} 1`)
	w.wantMetric(`sandbox_step_duration_seconds_count{backend="docker",code="ok",step="spawn"} 1`)
	if _, err := w.service.Release(t.Context(), sandbox.LeaseRef{ID: id}); err != nil {
		t.Fatal(err)
	}
	w.wantMetric(`sandbox_destroy_delay_seconds_count{backend="docker",ended_by="release"} 1`)
	w.wantMetric(`sandbox_backend_up{backend="docker"} 1`)
}

// wantMetric waits until the reconciler exports a line.
func (w *world) wantMetric(line string) {
	w.Helper()
	w.eventually("there is "+line, func() bool {
		r, err := http.NewRequestWithContext(w.Context(), http.MethodGet, w.url+"/metrics", nil)
		if err != nil {
			w.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+w.token)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			w.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			w.Fatalf("%s: %v", answer.Status, err)
		}
		return strings.Contains(string(body), "\n"+line+"\n")
	})
}
