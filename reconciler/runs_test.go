package reconciler_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestARunOutlivesNoReconciler kills the reconciler in the middle of a run. The next one destroys its sandbox.
func TestARunOutlivesNoReconciler(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.environment("catan")
	lost := make(chan error, 1)
	go func() {
		_, err := w.service.Run(t.Context(), sandbox.RunRequest{
			EnvironmentID: "catan",
			Margin:        sandbox.Duration(10 * time.Second),
			ExecRequest: sandbox.ExecRequest{
				Command: []string{"sleep", "3600"}, Timeout: sandbox.Duration(5 * time.Second),
			},
		})
		lost <- err
	}()
	w.eventually("the run has its sandbox", func() bool { return w.containers() == 1 })
	w.kill()
	if err := <-lost; err == nil {
		t.Error("the run of a reconciler that was killed has a result")
	}
	w.start()
	w.eventually("the run's sandbox is gone",
		func() bool { return w.docker("ps", "-aq", "--filter", w.labelled(), "--filter", sandboxes) == "" })
}

func TestARunInARealSandbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.environment("catan")
	var out, collected bytes.Buffer
	r, err := w.service.Run(t.Context(), sandbox.RunRequest{
		EnvironmentID: "catan", Files: archiveOf(10), Collect: []string{"out", "many/[0-2]/*"}, Collected: &collected,
		Choice: sandbox.SandboxChoice{Network: sandbox.NetworkNone, Resources: sandbox.Resources{MemoryMB: 512, CPUMillis: 500}},
		ExecRequest: sandbox.ExecRequest{
			Command: []string{"sh", "-c", "cat many/3/3; cat; echo ${HTTPS_PROXY:-no way out}; " +
				"cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null; mkdir out; echo result > out/file"},
			Stdin:  strings.NewReader("the end\n"),
			Stdout: &out,
		},
	})
	if err != nil || r.ExitCode != 0 || out.String() != "file 3\nthe end\nno way out\n536870912\n" || r.Lease.Status != sandbox.LeaseDestroyed ||
		len(r.Missing) != 0 {
		t.Errorf("the run wrote %q and gave %+v: %v", out.String(), r, err)
	}
	if got := collected.String(); !strings.Contains(got, "workspace/out/file") || !strings.Contains(got, "result\n") ||
		!strings.Contains(got, "workspace/many/2/2") || strings.Contains(got, "workspace/many/3/3") {
		t.Errorf("it collected %d bytes", collected.Len())
	}
	if left := w.docker("ps", "-aq", "--filter", w.labelled(), "--filter", sandboxes); left != "" {
		t.Errorf("left on the engine: %s", left)
	}
}

// Code of a sandbox cannot hide how its command ended by making what is collected unreadable.
func TestWhatCannotBeCollectedIsMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.environment("catan")
	var collected bytes.Buffer
	r, err := w.service.Run(t.Context(), sandbox.RunRequest{
		EnvironmentID: "catan", Collect: []string{"link", "locked", "file/below", "kept"}, Collected: &collected,
		ExecRequest: sandbox.ExecRequest{Command: []string{"sh", "-c",
			"ln -s /etc/passwd link; mkdir locked; chmod 0 locked; echo x >file; echo result >kept; exit 7"}},
	})
	if want := []string{"/workspace/link", "/workspace/locked", "/workspace/file/below"}; err != nil || r.ExitCode != 7 ||
		!slices.Equal(r.Missing, want) || !strings.Contains(collected.String(), "result\n") {
		t.Errorf("the run gave %+v, %v, and collected %d bytes", r, err, collected.Len())
	}
}
