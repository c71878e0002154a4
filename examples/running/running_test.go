package running_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run runs a command, and returns what it writes.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute)
	defer cancel()
	var out, said bytes.Buffer
	c := exec.CommandContext(ctx, name, args...)
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "DOCKER_BUILDKIT=0") // not every engine's client has BuildKit
	c.Stdout, c.Stderr = &out, &said
	if err := c.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out.String(), said.String())
	}
	return strings.TrimSpace(out.String())
}

func TestRunningUnderSystemdIsConfined(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("there is no systemd-analyze")
	}
	text, err := os.ReadFile("systemd/sandbox-reconciler.service")
	must(t, err)
	unit := filepath.Join(t.TempDir(), "sandbox-reconciler.service")
	// What it starts is not installed here.
	must(t, os.WriteFile(unit, bytes.ReplaceAll(text, []byte("/usr/local/bin/terraform-provider-sandbox"), []byte("/bin/true")), 0o600))
	run(t, "systemd-analyze", "verify", "--man=no", unit)
	run(t, "systemd-analyze", "security", "--offline=true", "--threshold=20", unit) // of 100, where 0 is best
}

// service is what the compose file says of the reconciler.
type service struct {
	Command     []string          `yaml:"command"`
	Environment map[string]string `yaml:"environment"`
	Volumes     []string          `yaml:"volumes"`
	GroupAdd    []string          `yaml:"group_add"`
	ReadOnly    bool              `yaml:"read_only"`
	Tmpfs       []string          `yaml:"tmpfs"`
	CapDrop     []string          `yaml:"cap_drop"`
	SecurityOpt []string          `yaml:"security_opt"`
}

// composed reads the compose file's reconciler, with variables as its .env has them.
func composed(t *testing.T, env map[string]string) service {
	t.Helper()
	text, err := os.ReadFile("container/compose.yaml")
	must(t, err)
	var file struct {
		Services map[string]service `yaml:"services"`
	}
	must(t, yaml.Unmarshal([]byte(os.Expand(string(text), func(name string) string {
		name, _, _ = strings.Cut(name, ":?")
		return env[name]
	})), &file))
	return file.Services["reconciler"]
}

// arguments are those of docker run for the service.
func (s service) arguments() []string {
	var args []string
	add := func(flag string, values ...string) {
		for _, v := range values {
			args = append(args, flag, v)
		}
	}
	for name, value := range s.Environment {
		add("--env", name+"="+value)
	}
	add("--volume", s.Volumes...)
	add("--group-add", s.GroupAdd...)
	add("--tmpfs", s.Tmpfs...)
	add("--cap-drop", s.CapDrop...)
	add("--security-opt", s.SecurityOpt...)
	if s.ReadOnly {
		args = append(args, "--read-only")
	}
	return args
}

// TestRunningInAContainer: a reconciler as the compose file has it, with another address, ledger and directory, gives
// leases on the engine beside it, whose sandboxes have what lies under one path for both, and ends them.
func TestRunningInAContainer(t *testing.T) {
	t.Parallel()
	if os.Getenv("SANDBOX_TEST_LONG") == "" {
		t.Skip("set SANDBOX_TEST_LONG=1: it builds and runs the reconciler's image")
	}
	const image, player = "sandbox-test/reconciler", "did:plc:ann"
	bin := t.TempDir()
	run(t, "go", "build", "-o", filepath.Join(bin, "terraform-provider-sandbox"), "../..")
	run(t, "docker", "build", "--quiet", "--build-arg", "BASE=scratch", "--tag", image, "--file", "container/Dockerfile", bin)
	t.Cleanup(func() { run(t, "docker", "rmi", "--force", image) })

	socket := strings.TrimPrefix(dockertest.Engine(t).DaemonHost(), "unix://")
	info, err := os.Stat(socket)
	must(t, err)
	s := composed(t, map[string]string{
		"LEDGER_PASSWORD": "unused", // it stands in the URL of the test's ledger
		"DOCKER_GID":      strconv.FormatUint(uint64(info.Sys().(*syscall.Stat_t).Gid), 10),
	})
	credentials, games := directory(t, 0o700), directory(t, 0o755)
	must(t, os.Chown(credentials, 65532, 65532))
	must(t, os.WriteFile(filepath.Join(games, "rules.txt"), []byte("explore the dungeon\n"), 0o644)) // #nosec G306 -- others read it
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	address := listener.Addr().String()
	must(t, listener.Close())
	ledger := postgrestest.Start(t).URL(t)
	s.Environment["SANDBOX_SERVE_LISTEN"], s.Environment["SANDBOX_SERVE_LEDGER"], s.Environment["SANDBOX_SERVE_MOUNT_ALLOW"] = address, ledger, games
	s.Volumes = []string{socket + ":/var/run/docker.sock", credentials + ":/credentials", games + ":" + games + ":ro"}
	id := run(t, "docker", append(append([]string{"run", "--detach", "--network", "host"}, s.arguments()...), append([]string{image}, s.Command...)...)...)
	t.Cleanup(func() {
		logs := exec.CommandContext(context.WithoutCancel(t.Context()), "docker", "logs", id)
		if out, err := logs.CombinedOutput(); t.Failed() {
			t.Logf("the reconciler's log (%v):\n%s", err, out)
		}
		run(t, "docker", "rm", "--force", "--volumes", id)
	})
	awaitReady(t, "http://"+address)

	token := run(t, "docker", "exec", id, "/usr/local/bin/terraform-provider-sandbox", "reconciler", "token", "create", "ops", "--scope", "admin", "--ledger", ledger)
	c, err := client.New(client.Config{URL: "http://" + address, Token: token})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	spec := sandbox.EnvironmentSpec{
		Type: sandbox.TypeCatan, Image: dockertest.Busybox(t),
		HostAccess: sandbox.HostAccess{
			Mounts: []sandbox.Mount{{Source: games, Target: "/games"}},
			Copies: []sandbox.Copy{{Source: filepath.Join(games, "rules.txt"), Target: "/workspace/rules.txt"}},
		},
	}
	_, err = c.PutEnvironment(t.Context(), sandbox.PutEnvironment{ID: "catan-7", EnvironmentSpec: spec})
	must(t, err)
	t.Cleanup(func() {
		must(t, c.DeleteEnvironment(context.WithoutCancel(t.Context()), sandbox.DeleteEnvironment{ID: "catan-7", Force: true}))
	})
	got, err := c.Acquire(t.Context(), sandbox.Acquire{EnvironmentID: "catan-7", AgentDID: player})
	must(t, err)
	res, err := c.Exec(t.Context(), sandbox.LeaseRef{ID: got.Lease.ID}, sandbox.ExecRequest{Command: []string{"cat", "/games/rules.txt", "/workspace/rules.txt"}})
	must(t, err)
	if string(res.Stdout) != "explore the dungeon\nexplore the dungeon\n" {
		t.Errorf("the sandbox has %q %q", res.Stdout, res.Stderr)
	}
	over := sandbox.Condition{Type: "game.finished", Timestamp: time.Now(), Data: sandbox.ConditionData{EnvironmentID: "catan-7"}}
	_, err = c.Deliver(t.Context(), sandbox.Delivery{ID: "msg_" + sandbox.RandomIDs(20), Condition: over})
	must(t, err)
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		l, err := c.GetLease(t.Context(), got.Lease.ID)
		must(t, err)
		if l.Status == sandbox.LeaseDestroyed {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("a minute after the end of the game the lease is %s", l.Status)
		}
	}
}

// directory makes one that others reach by its path, with the mode.
func directory(t *testing.T, mode os.FileMode) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "running")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Chmod(dir, mode))
	return dir
}

func awaitReady(t *testing.T, url string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/readyz", nil)
		must(t, err)
		resp, err := http.DefaultClient.Do(r)
		if err == nil {
			must(t, resp.Body.Close())
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("the reconciler is not ready within a minute: %v", err)
		}
	}
}
