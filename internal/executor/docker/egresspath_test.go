package docker_test

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (r *restricted) wantOut(t testing.TB, h driver.Handle, when string, want bool) {
	t.Helper()
	if got := r.probe(t, h, "get", "https://good.test/"); strings.HasPrefix(got, "reached") != want {
		t.Errorf("%s: %q", when, got)
	}
}

func TestTheWayOutOutlivesSleepAndAGatewayThatEnds(t *testing.T) {
	t.Parallel()
	r := newRestricted(t)
	h := r.spawn(t)
	r.wantOut(t, h, "at first", true)
	for _, mode := range []sandbox.SleepMode{sandbox.SleepPause, sandbox.SleepStop} {
		must(t, r.x.Sleep(t.Context(), h, mode))
		wake(t, r.x, h)
		r.wantOut(t, h, "after sleep by "+string(mode), true)
	}

	grace := 0
	must(t, r.api.ContainerStop(t.Context(), r.gateway(), dockerapi.StopOptions{Timeout: &grace}))
	r.wantOut(t, h, "while the gateway is stopped", false)
	wake(t, r.x, h)
	r.wantOut(t, h, "after the next wake", true)

	must(t, r.api.ContainerRemove(t.Context(), r.gateway(), dockerapi.ContainerRemoveOptions{Force: true}))
	r.wantOut(t, h, "while the gateway is gone", false)
	r.allow(t, r.egress)
	r.wantOut(t, h, "after the next Provision", true)

	// Killed from outside of the engine, it restarts by itself and keeps its state.
	must(t, r.api.ContainerKill(t.Context(), r.gateway(), "SIGKILL"))
	wake(t, r.x, h)
	r.wantOut(t, h, "after a crash", true)
}

func TestWhatAnEnvironmentLetsOutChangesWhileItsSandboxesRun(t *testing.T) {
	t.Parallel()
	r := newRestricted(t)
	h := r.spawn(t)
	r.allow(t, sandbox.Egress{Allow: []sandbox.EgressRule{{Host: "other.test"}}})
	r.wantOut(t, h, "once it is not allowed", false)
	r.allow(t, sandbox.Egress{Allow: []sandbox.EgressRule{{Host: "good.test"}}})
	r.wantOut(t, h, "in a private range that is not named", false)
	r.allow(t, r.egress)
	r.wantOut(t, h, "once it is allowed again", true)
}

func TestASandboxThatIsKilledHasNoSocketLeft(t *testing.T) {
	t.Parallel()
	r := newRestricted(t)
	killed, other := r.spawn(t), r.spawn(t)
	must(t, r.x.Kill(t.Context(), killed))
	must(t, r.x.Kill(t.Context(), killed))
	r.wantOut(t, other, "another sandbox", true)
	dir, err := r.api.VolumeInspect(t.Context(), "sandbox-"+r.ref.LedgerID+"-env-"+r.ref.EnvironmentID+"-egress")
	must(t, err)
	if left := glob(t, dir.Mountpoint, killed.SandboxID); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if there := glob(t, dir.Mountpoint, other.SandboxID); len(there) == 0 {
		t.Error("this test looks in the wrong place")
	}
}

func TestAPooledSandboxGoesOutForTheAgentThatGetsIt(t *testing.T) {
	t.Parallel()
	r := newRestricted(t)
	spec := r.spec()
	pooled := spec
	pooled.LeaseID, pooled.AgentDID, pooled.Generation, pooled.Config = "", "", 0, nil
	must(t, r.x.Spawn(t.Context(), pooled))
	must(t, r.x.Sleep(t.Context(), spec.Handle, sandbox.SleepPause))
	wake(t, r.x, spec.Handle)
	must(t, r.x.Assign(t.Context(), spec))
	r.wantOut(t, spec.Handle, "once it is assigned", true)
	var opened []audit.Record
	eventually(t, "the log has the connection", func() bool {
		opened = slices.DeleteFunc(r.attempts(t, spec.Handle), func(a audit.Record) bool { return a.Kind != audit.Opened })
		return len(opened) > 0
	})
	for _, a := range opened {
		if a.Agent != spec.AgentDID {
			t.Errorf("the log names %+v", a)
		}
	}
}

// A remote engine may be on another machine: calls to the gateway go through it.
func TestTheGatewayOfARemoteEngineIsReachedThroughTheEngine(t *testing.T) {
	t.Parallel()
	r, line := newRestricted(t), dockertest.NewCuttableProxy(t)
	r.config.Host = line.Host()
	remote, err := docker.New(r.config)
	must(t, err)
	t.Cleanup(func() { must(t, remote.Close()) })
	spec := r.spec()
	must(t, remote.Spawn(t.Context(), spec))
	r.wantOut(t, spec.Handle, "spawned over the network", true)
	line.Cut()
	must(t, remote.Kill(t.Context(), spec.Handle))
}

// Measure the memory that the sandbox is charged for. All share the program's own pages.
func TestProcess1StaysSmallWhateverGoesThroughIt(t *testing.T) {
	t.Parallel()
	r := newRestricted(t)
	h := r.spawn(t)
	for range 3 {
		r.probe(t, h, "pull", "https://good.test/zeros")
	}
	kib, err := strconv.Atoi(r.probe(t, h, "memory"))
	must(t, err)
	if kib > 5<<10 {
		t.Errorf("process 1 has %d KiB in memory", kib)
	}
	t.Logf("process 1 has %d KiB in memory", kib)
}

func TestTheGatewayIsConfinedToo(t *testing.T) {
	t.Parallel()
	r := newRestricted(t)
	made := r.spec()
	made.Resources.DiskMB = 1024
	must(t, r.x.Spawn(t.Context(), made))
	checks, err := r.x.Audit(t.Context(), r.ref.LedgerID)
	must(t, err)
	for _, c := range checks {
		if c.Verdict == sandbox.VerdictFinding {
			t.Errorf("sandbox %s: %s %s: %s", made.SandboxID, c.Rule, c.Title, c.Detail)
		}
	}
	looked := func(object string) bool {
		return slices.ContainsFunc(checks, func(c sandbox.AuditCheck) bool { return c.Object == object })
	}
	if !looked(r.gateway()) || !looked(name(made.Handle)) {
		t.Error("the audit did not look at both")
	}
	must(t, r.api.NetworkConnect(t.Context(), "bridge", r.gateway(), nil))
	checks, err = r.x.Audit(t.Context(), r.ref.LedgerID)
	must(t, err)
	var found []string
	for _, c := range checks {
		if c.Verdict == sandbox.VerdictFinding {
			found = append(found, c.Object+" "+c.Rule)
		}
	}
	if want := []string{r.gateway() + " G.2"}; !slices.Equal(found, want) {
		t.Errorf("the findings are %q, want %q", found, want)
	}
	c, err := r.api.ContainerInspect(t.Context(), r.gateway())
	must(t, err)
	h := c.HostConfig
	for rule, kept := range map[string]bool{
		"no capabilities":     len(h.CapAdd) == 0 && len(h.CapDrop) == 1 && h.CapDrop[0] == "ALL",
		"no new privileges":   slices.Contains(h.SecurityOpt, "no-new-privileges"),
		"read-only root":      h.ReadonlyRootfs,
		"not root":            c.Config.User == "65532:65532",
		"memory and PIDs":     h.Memory == 256<<20 && h.MemorySwap == h.Memory && *h.PidsLimit == 128,
		"no ports":            len(h.PortBindings) == 0 && !h.PublishAllPorts,
		"one volume, no file": len(c.Mounts) == 1 && string(c.Mounts[0].Type) == "volume",
		"bounded logs":        h.LogConfig.Config["max-size"] != "" && h.LogConfig.Config["max-file"] != "",
		"our labels": c.Config.Labels["io.sandbox-lease.ledger"] == r.ref.LedgerID &&
			c.Config.Labels["io.sandbox-lease.role"] == "gateway",
	} {
		if !kept {
			t.Errorf("%s: not kept", rule)
		}
	}
}

// glob lists the paths with an id in their name, at any depth of a directory of the engine's host.
func glob(t testing.TB, root, id string) []string {
	t.Helper()
	var found []string
	must(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if strings.Contains(filepath.Base(path), id) {
			found = append(found, path)
		}
		return err
	}))
	return found
}
