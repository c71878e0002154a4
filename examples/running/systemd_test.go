package running_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const unitFile = "systemd/sandbox-reconciler.service"

func TestRunningUnderSystemdIsConfined(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("there is no systemd-analyze")
	}
	text, err := os.ReadFile(unitFile)
	must(t, err)
	unit := filepath.Join(t.TempDir(), "sandbox-reconciler.service")
	// The unit's program is not installed here.
	must(t, os.WriteFile(unit,
		bytes.ReplaceAll(text, []byte("ExecStart=sandbox "), []byte("ExecStart=/bin/true ")), 0o600))
	run(t, "systemd-analyze", "verify", "--man=no", unit)
	run(t, "systemd-analyze", "security", "--offline=true", "--threshold=20", unit) // of 100, where 0 is best
}

// TestRunningUnderSystemd installs the unit as its comment says, on a machine with systemd. systemd reports it as
// started once the reconciler answers. It leases sandboxes under all of its confinement. After a kill it restarts,
// while sandboxes continue.
func TestRunningUnderSystemd(t *testing.T) {
	t.Parallel()
	if os.Getenv("SANDBOX_TEST_ALL") == "" {
		t.Skip("set SANDBOX_TEST_ALL=1: it makes a Debian with systemd")
	}
	address := freeAddress(t)
	m := newMachine(t, address)
	m.sh(installation(t))
	if state, status := m.property("ActiveState"), m.property("StatusText"); state != "active" ||
		status != "Serving on "+address {
		t.Errorf("once it is started it is %s: %s", state, status)
	}
	m.wantConfined()

	g := playedBy(t, "http://"+address, m.sh("awk '{ print $2 }' /var/lib/sandbox/tokens"))
	player := g.join(sandbox.HostAccess{})
	g.exec(player, "sh", "-c", "echo 3 > /workspace/turn")

	m.sh("systemctl reload sandbox-reconciler")
	first := m.property("MainPID")
	m.sh("systemctl kill --signal KILL sandbox-reconciler")
	eventually(t, "it has started again",
		func() bool { return m.property("ActiveState") == "active" && m.property("MainPID") != first })
	if got := g.exec(player, "cat", "/workspace/turn"); got != "3\n" {
		t.Errorf("after the reconciler was killed the sandbox has %q", got)
	}
	g.finish(player)

	m.sh("systemctl stop sandbox-reconciler")
	if state, result := m.property("ActiveState"), m.property("Result"); state != "inactive" || result != "success" {
		t.Errorf("once it is stopped it is %s: %s", state, result)
	}
	m.sh("systemctl start sandbox-reconciler") // so that the test can remove its objects
}

// installation returns the installation commands in the unit's comment.
func installation(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(unitFile)
	must(t, err)
	lines := regexp.MustCompile(`(?m)^#   (.*)$`).FindAllStringSubmatch(string(text), -1)
	var commands []string
	for _, l := range lines {
		commands = append(commands, l[1])
	}
	if len(commands) < 4 {
		t.Fatalf("its installation commands are %q", commands)
	}
	return "cd /repository\n" + strings.Join(commands, "\n")
}

// machine is a Debian with systemd: a container beside the sandboxes, on the engine's machine.
type machine struct {
	*testing.T
	id string
}

// newMachine starts a machine with the program, its unit, and settings that make it listen on an address.
func newMachine(t *testing.T, address string) machine {
	t.Helper()
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		t.Skip("systemd in a container is only known to run beside an engine with cgroup v1")
	}
	image := run(t, "../../scripts/debian-base", "systemd", "systemd", "systemd-sysv", "dbus")
	socket, group := engineSocket(t)
	m := machine{t, run(t, "docker", "run", "--detach", "--network", "host", "--stop-signal", "SIGRTMIN+3",
		"--cap-add", "SYS_ADMIN", "--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined",
		"--cgroupns", "private", "--volume", "/sys/fs/cgroup:/sys/fs/cgroup", "--tmpfs", "/run", "--tmpfs", "/tmp",
		"--env", "container=docker", "--volume", socket+":/engine.sock", image, "/lib/systemd/systemd")}
	cleanUp(t, m.id, "exec", m.id, "journalctl", "--no-pager", "--lines", "100")
	eventually(t, "systemd runs", func() bool {
		out, err := exec.CommandContext(t.Context(), "docker", "exec", m.id, "systemctl", "is-system-running").Output()
		return err == nil && strings.TrimSpace(string(out)) == "running"
	})

	repository := filepath.Join(t.TempDir(), "repository")
	must(t, os.MkdirAll(filepath.Join(repository, "examples/running"), 0o750))
	must(t, os.CopyFS(filepath.Join(repository, "examples/running/systemd"), os.DirFS("systemd")))
	must(t, os.Rename(build(t), filepath.Join(repository, "bin")))
	settings := filepath.Join(repository, "examples/running/systemd/reconciler.yaml")
	text, err := os.ReadFile(settings)
	must(t, err)
	changed := strings.Replace(string(text), "listen: 127.0.0.1:8787", "listen: "+address, 1)
	if changed == string(text) {
		t.Fatalf("the settings do not say where to listen: %s", text)
	}
	must(t, os.WriteFile(settings, []byte(changed), 0o600))
	run(t, "docker", "cp", repository, m.id+":/repository")
	m.sh("ln -s /engine.sock /run/docker.sock; groupadd --gid " + group + " docker")
	return m
}

// sh runs a script on the machine, and returns its output.
func (m machine) sh(script string) string {
	m.Helper()
	return run(m.T, "docker", "exec", m.id, "sh", "-ec", script)
}

// property returns a property of the reconciler's service from systemd.
func (m machine) property(name string) string {
	m.Helper()
	return m.sh("systemctl show --value --property " + name + " sandbox-reconciler")
}

// wantConfined checks that the kernel enforces the confinement of the unit.
func (m machine) wantConfined() {
	m.Helper()
	pid := m.property("MainPID")
	status := m.sh("cat /proc/" + pid + "/status")
	for _, line := range []string{
		"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2",
	} {
		if !strings.Contains(status, line+"\n") {
			m.Errorf("the reconciler's process lacks %q:\n%s", line, status)
		}
	}
	if mounts := m.sh("cat /proc/" + pid + "/mounts"); !regexp.MustCompile(`(?m)^\S+ / \S+ ro,`).MatchString(mounts) {
		m.Errorf("the reconciler may write to the system:\n%s", mounts)
	}
}
