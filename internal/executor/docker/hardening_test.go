package docker_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// spawnConfined provisions the environment with a confinement, and creates a sandbox.
func (w *world) spawnConfined(t *testing.T, c sandbox.Confinement) driver.Handle {
	t.Helper()
	environment, spec := w.environment(), w.spec()
	environment.Confinement, spec.Confinement = c.WithDefaults(), c.WithDefaults()
	must(t, w.x.Provision(t.Context(), w.ref, environment))
	must(t, w.x.Spawn(t.Context(), spec))
	return spec.Handle
}

func TestLabelsSayWhoseASandboxIs(t *testing.T) {
	t.Parallel()
	w, api := newWorld(t, dockertest.Busybox(t)), dockertest.Engine(t)
	spec := w.spec()
	spec.Labels = map[string]string{"team": "red"}
	must(t, w.x.Spawn(t.Context(), spec))
	c, err := api.ContainerInspect(t.Context(), name(spec.Handle))
	must(t, err)
	for label, want := range map[string]string{
		"io.sandbox-lease.ledger": spec.LedgerID, "io.sandbox-lease.environment": spec.EnvironmentID,
		"io.sandbox-lease.sandbox": spec.SandboxID, "io.sandbox-lease.lease": spec.LeaseID,
		"io.sandbox-lease.generation": "1", "io.sandbox-lease.provider": "terraform-provider-sandbox",
		"io.sandbox-lease.label.team": "red",
	} {
		if c.Config.Labels[label] != want {
			t.Errorf("label %s is %q, want %q", label, c.Config.Labels[label], want)
		}
	}
	for _, m := range []string{"-workspace", "-data"} {
		v, err := api.VolumeInspect(t.Context(), name(spec.Handle)+m)
		must(t, err)
		if v.Labels["io.sandbox-lease.label.team"] != "red" {
			t.Errorf("volume %s has the labels %v", v.Name, v.Labels)
		}
	}
	// The labels of a lease may change before its sandbox exists.
	spec.Labels = map[string]string{"team": "blue"}
	must(t, w.x.Spawn(t.Context(), spec))
}

// findings returns an audit's findings about a sandbox, by rule, and the number of rules that passed.
func (w *world) findings(t *testing.T, sandboxID string) (found map[string]string, rules int) {
	t.Helper()
	checks, err := w.x.Audit(t.Context(), w.ref.LedgerID)
	must(t, err)
	found = map[string]string{}
	for _, c := range checks {
		if c.SandboxID != sandboxID {
			continue
		}
		rules++
		switch c.Verdict {
		case sandbox.VerdictFinding:
			found[c.Rule] = c.Detail
		case sandbox.VerdictInapplicable:
			// AppArmor and SELinux depend on the host.
			if !slices.Contains([]string{"5.2", "5.3"}, c.Rule) && c.Detail != "it is not running" {
				t.Errorf("rule %s does not apply: %s", c.Rule, c.Detail)
			}
		}
	}
	return found, rules
}

func TestASandboxKeepsEveryRuleOfTheAudit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	spec := w.spec()
	spec.Resources.DiskMB = 1024
	must(t, w.x.Spawn(t.Context(), spec))
	waiting := w.spec()
	waiting.Resources.DiskMB = 1024
	waiting.LeaseID, waiting.AgentDID, waiting.Generation, waiting.Config = "", "", 0, nil
	must(t, w.x.Spawn(t.Context(), waiting))
	for _, id := range []string{spec.SandboxID, waiting.SandboxID} {
		if found, rules := w.findings(t, id); len(found) != 0 || rules < 35 {
			t.Errorf("%d rules, findings: %v", rules, found)
		}
	}
}

// TestTheAuditFindsWhatWasWeakened creates containers with our labels, as a user of the engine's socket could. Each is
// weaker in one setting.
func TestTheAuditFindsWhatWasWeakened(t *testing.T) {
	t.Parallel()
	w, api := newWorld(t, dockertest.Busybox(t)), dockertest.Engine(t)
	spec := w.spec()
	spec.Resources.DiskMB = 1024
	must(t, w.x.Spawn(t.Context(), spec))
	model, err := api.ContainerInspect(t.Context(), name(spec.Handle))
	must(t, err)
	no := true
	for i, row := range []struct {
		rule   string
		weaken func(c *dockerapi.ContainerConfig, h *dockerapi.HostConfig)
	}{
		{"4.1", func(c *dockerapi.ContainerConfig, _ *dockerapi.HostConfig) { c.User = "" }},
		{"4.1", func(c *dockerapi.ContainerConfig, _ *dockerapi.HostConfig) { c.User = "1000:0" }},
		{"5.4", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) { h.CapAdd = []string{"NET_ADMIN"} }},
		{"5.4", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) { h.CapDrop = nil }},
		{"5.5", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) { h.Privileged = true }},
		{"5.6", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) { h.Binds = []string{"/etc:/mnt:ro"} }},
		{"5.8", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) { h.PublishAllPorts = true }},
		{"5.10", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) { h.NetworkMode = "host" }},
		{"5.11", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) { h.MemorySwap = -1 }},
		{"5.11", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) { h.Memory, h.MemorySwap = 0, 0 }},
		{"5.12", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) { h.NanoCPUs = 0 }},
		{"5.13", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) { h.ReadonlyRootfs = false }},
		{"5.15", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) { h.RestartPolicy.Name = "always" }},
		{"5.16", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) { h.PidMode = "host" }},
		{"5.17", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) { h.IpcMode = "host" }},
		{"5.18", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) {
			h.Devices = []dockerapi.DeviceMapping{{PathOnHost: "/dev/null", PathInContainer: "/dev/x", CgroupPermissions: "r"}}
		}},
		{"5.19", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) { h.Ulimits = nil }},
		{"5.20", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) {
			h.Mounts = append(slices.Clone(h.Mounts), dockerapi.Mount{
				Type:        dockerapi.MountTypeBind,
				Source:      "/tmp",
				Target:      "/mnt",
				BindOptions: &dockerapi.BindOptions{Propagation: dockerapi.PropagationRShared},
			})
		}},
		{"5.21", func(c *dockerapi.ContainerConfig, h *dockerapi.HostConfig) { h.UTSMode, c.Hostname = "host", "" }},
		{"5.22", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) {
			h.SecurityOpt = []string{"no-new-privileges", "seccomp=unconfined"}
		}},
		{"5.22", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) {
			h.SecurityOpt = []string{"no-new-privileges"}
		}},
		{"5.25", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) { h.CgroupParent = "/elsewhere" }},
		{"5.26", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) { h.SecurityOpt = nil }},
		{"5.27", func(c *dockerapi.ContainerConfig, _ *dockerapi.HostConfig) { c.Healthcheck = nil }},
		{"5.29", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) { h.PidsLimit = nil }},
		{"5.30", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) { h.NetworkMode = "bridge" }},
		{"5.31", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) { h.UsernsMode = "host" }},
		{"5.32", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) {
			h.Binds = []string{"/var/run/docker.sock:/mnt/docker.sock:ro"}
		}},
		{"S.1", func(c *dockerapi.ContainerConfig, _ *dockerapi.HostConfig) {
			c.Entrypoint = []string{"/bin/sleep", "1h"}
		}},
		{"S.1", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) { h.Init = &no }},
		{"S.2", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) { h.LogConfig.Config = nil }},
		{"S.3", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) {
			h.Tmpfs = map[string]string{"/tmp": "rw,exec"}
		}},
		{"S.3", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) {
			h.Tmpfs = map[string]string{"/tmp": "rw,noexec,nosuid,nodev,size=32m,mode=1777"}
		}},
		{"S.4", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) {
			h.MaskedPaths, h.ReadonlyPaths = []string{}, []string{}
		}},
		{"S.5", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) { h.OomKillDisable = &no }},
		{"S.6", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) { h.GroupAdd = []string{"0"} }},
		{"S.6", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) {
			h.Sysctls = map[string]string{"net.ipv4.ping_group_range": "1 0", "net.ipv4.ip_forward": "1"}
		}},
		{"S.7", func(_ *dockerapi.ContainerConfig, h *dockerapi.HostConfig) { h.NetworkMode, h.Sysctls = "bridge", nil }},
		{"S.12", func(c *dockerapi.ContainerConfig, h *dockerapi.HostConfig) {
			h.Mounts = nil
			c.Volumes = map[string]struct{}{"/scratch": {}}
		}},
	} {
		t.Run(row.rule+"/"+strconv.Itoa(i), func(t *testing.T) {
			c, h := *model.Config, *model.HostConfig
			id := sandbox.RandomIDs(sandbox.SandboxIDLength)
			c.Labels = map[string]string{}
			for k, v := range model.Config.Labels {
				c.Labels[k] = v
			}
			c.Labels["io.sandbox-lease.sandbox"] = id
			row.weaken(&c, &h)
			made, err := api.ContainerCreate(t.Context(), &c, &h, nil, nil, "")
			must(t, err)
			defer func() {
				must(t, api.ContainerRemove(t.Context(), made.ID,
					dockerapi.ContainerRemoveOptions{Force: true, RemoveVolumes: true}))
			}()
			found, _ := w.findings(t, id)
			if found[row.rule] == "" {
				t.Errorf("rule %s is taken to be kept; findings: %v", row.rule, found)
			}
			if found, _ := w.findings(t, spec.SandboxID); len(found) != 0 {
				t.Errorf("the sandbox beside it: %v", found)
			}
		})
	}
	t.Run("updated while it runs", func(t *testing.T) {
		unlimited := int64(-1)
		_, err := api.ContainerUpdate(t.Context(), name(spec.Handle),
			dockerapi.UpdateConfig{Resources: dockerapi.Resources{PidsLimit: &unlimited}})
		must(t, err)
		if found, _ := w.findings(t, spec.SandboxID); len(found) != 1 || found["5.29"] == "" {
			t.Errorf("findings: %v, want 5.29", found)
		}
	})
}

func TestWhatTheEngineCannotHoldIsRefusedByName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	for field, row := range map[string]struct {
		change func(s *sandbox.EnvironmentSpec)
		says   string
	}{
		"confinement.runtime": {func(s *sandbox.EnvironmentSpec) { s.Confinement.Runtime = "runsc" }, "runc"},
		"confinement.disk_limit": {func(s *sandbox.EnvironmentSpec) { s.Confinement.DiskLimit = sandbox.DiskEnforced },
			"prjquota"},
		"resources.cpu_millis": {func(s *sandbox.EnvironmentSpec) { s.Resources.CPUMillis = 1_000_000 }, "CPUs"},
	} {
		spec := w.environment()
		row.change(&spec)
		err := w.x.Provision(t.Context(), w.ref, spec)
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Code != sandbox.Invalid || len(e.Fields) != 1 || e.Fields[0].Name != field ||
			!strings.Contains(e.Fields[0].Problem, row.says) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestASandboxRunsAsTheUserOfItsEnvironment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	h := w.spawnConfined(t, sandbox.Confinement{User: "2000:3000", TmpMB: 8, RunMB: 2, OpenFiles: 128})
	const want = "2000:3000\n2000:3000\n2000:3000\n2000:3000\n"
	if got := w.exec(t, h,
		"sh", "-c", "echo $(id -u):$(id -g); stat -c %u:%g /workspace /data /workspace/config.json"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := w.exec(t, h, "sh", "-c", "touch /workspace/a /data/a /run/a; df -m /tmp /run | tail -n 2 | tr -s ' ' | "+
		"cut -d' ' -f2; ulimit -n"); got != "8\n2\n128\n" {
		t.Errorf("sizes and open files are %q", got)
	}
}

func TestRootThatIsAllowedHasNoCapability(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	h := w.spawnConfined(t, sandbox.Confinement{User: "0:0", AllowRoot: true})
	got := w.exec(t, h, "sh", "-c", "id -u; grep CapBnd /proc/self/status | tr -d '\\t'; touch /workspace/mine && echo "+
		"wrote; chown 5 /workspace/mine || echo refused")
	if want := "0\nCapBnd:0000000000000000\nwrote\nrefused\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestAProfileOfTheEnvironmentIsInForce denies one system call more than the engine does.
func TestAProfileOfTheEnvironmentIsInForce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	h := w.spawnConfined(t, sandbox.Confinement{SeccompProfile: allowAllBut(t, "mkdir", "mkdirat")})
	got := w.exec(t, h, "sh", "-c", "grep '^Seccomp:' /proc/self/status | tr -d '\\t'; touch /workspace/a && echo file; "+
		"mkdir /workspace/b 2>/dev/null || echo denied")
	if want := "Seccomp:2\nfile\ndenied\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if found, _ := w.findings(t, h.SandboxID); found["5.22"] != "" {
		t.Errorf("the audit says %q of it", found["5.22"])
	}
}

// allowAllBut is a profile that allows the calls that the test's programs need, except the denied ones.
func allowAllBut(t *testing.T, denied ...string) string {
	t.Helper()
	profile := map[string]any{"defaultAction": "SCMP_ACT_ERRNO", "syscalls": []map[string]any{
		{
			"names":  slices.DeleteFunc(slices.Clone(commonSyscalls), func(n string) bool { return slices.Contains(denied, n) }),
			"action": "SCMP_ACT_ALLOW",
		},
	}}
	text, err := json.Marshal(profile)
	must(t, err)
	return string(text)
}
