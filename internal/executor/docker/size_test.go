package docker_test

import (
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestTheSmallestSandbox measures what the smallest size leaves for the programs of a sandbox. Process 1 uses less than
// 8 MiB of it. A program can use 40 MiB, a megabyte of output passes, and a sandbox is ready within 10 s.
func TestTheSmallestSandbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	spec := w.spec()
	spec.Resources.MemoryMB, spec.Resources.CPUMillis = sandbox.MinMemoryMB, sandbox.MinCPUMillis
	began := time.Now()
	must(t, w.x.Spawn(t.Context(), spec))
	ready := time.Since(began)
	idle, err := w.x.Usage(t.Context(), spec.Handle)
	must(t, err)
	began = time.Now()
	if out := w.exec(t, spec.Handle, "sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x"); len(out) != 1_000_000 {
		t.Errorf("%d bytes of output came, want 1000000", len(out))
	}
	output := time.Since(began)
	// dd holds one whole block in memory.
	w.exec(t, spec.Handle, "dd", "if=/dev/zero", "of=/dev/null", "bs=40000000", "count=1")
	t.Logf("ready after %s, idle with %d KiB, 1 MB of output took %s", ready, idle.MemoryBytes>>10, output)
	if ready > 10*time.Second || idle.MemoryBytes > 8<<20 {
		t.Errorf("it was ready after %s, and process 1 has %d KiB", ready, idle.MemoryBytes>>10)
	}
}
