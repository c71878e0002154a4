package docker_test

import (
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
)

// What the engine was told; executortest looks from inside. The rules are those of section 5 of the
// CIS Docker Benchmark that apply to a single container.
func TestContainerIsConfinedAsTheBenchmarkAsks(t *testing.T) {
	t.Parallel()
	w, api := newWorld(t, dockertest.Busybox(t)), dockertest.Engine(t)
	spec := w.spec()
	must(t, w.x.Spawn(t.Context(), spec))
	c, err := api.ContainerInspect(t.Context(), name(spec.Handle))
	must(t, err)
	h := c.HostConfig
	var writable []string
	for _, m := range c.Mounts {
		if m.RW {
			writable = append(writable, m.Destination)
		}
		if string(m.Type) != "volume" {
			t.Errorf("%s is a %s of %s: nothing of the host belongs into a sandbox", m.Destination, m.Type, m.Source)
		}
	}
	for rule, kept := range map[string]bool{
		"5.4 capabilities":        len(h.CapAdd) == 0 && len(h.CapDrop) == 1 && h.CapDrop[0] == "ALL",
		"5.5 not privileged":      !h.Privileged,
		"5.6 two writable mounts": len(writable) == 2 && len(c.Mounts) == 3,
		"5.10 network":            h.NetworkMode.IsNone() && len(h.PortBindings) == 0,
		"5.11 memory, no swap":    h.Memory == 64<<20 && h.MemorySwap == h.Memory,
		"5.12 CPU":                h.NanoCPUs == 1e9,
		"5.13 read-only root":     h.ReadonlyRootfs,
		"5.15 no restart":         h.RestartPolicy.Name == container.RestartPolicyDisabled,
		"5.16 PID namespace":      !h.PidMode.IsHost(),
		"5.17 IPC namespace":      h.IpcMode.IsPrivate(),
		"5.18 devices":            len(h.Devices) == 0,
		"5.21 UTS namespace":      !h.UTSMode.IsHost(),
		"5.22 seccomp":            !strings.Contains(strings.Join(h.SecurityOpt, " "), "unconfined"),
		"5.26 no new privileges":  len(h.SecurityOpt) == 1 && h.SecurityOpt[0] == "no-new-privileges",
		"5.27 no health check":    c.Config.Healthcheck != nil && c.Config.Healthcheck.Test[0] == "NONE",
		"5.29 PIDs":               h.PidsLimit != nil && *h.PidsLimit == 64,
		"4.1 user":                c.Config.User == "1000:1000",
		"bounded logs":            h.LogConfig.Config["max-size"] != "" && h.LogConfig.Config["max-file"] != "",
		"the guest is process 1":  h.Init != nil && !*h.Init && c.Path == "/.sandbox/guest",
	} {
		if !kept {
			t.Errorf("rule %q is not kept: %+v", rule, h)
		}
	}
	for label, want := range map[string]string{
		"io.sandbox-lease.ledger": spec.LedgerID, "io.sandbox-lease.environment": spec.EnvironmentID,
		"io.sandbox-lease.sandbox": spec.SandboxID, "io.sandbox-lease.lease": spec.LeaseID,
		"io.sandbox-lease.generation": "1", "io.sandbox-lease.provider": "terraform-provider-sandbox",
	} {
		if c.Config.Labels[label] != want {
			t.Errorf("label %s is %q, want %q", label, c.Config.Labels[label], want)
		}
	}
}
