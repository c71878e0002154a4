package dockertest

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
)

// Daemon is a separate Docker Engine for one test, which can be stopped and started.
type Daemon struct {
	t        testing.TB
	dir      string
	mapUsers bool
	process  *exec.Cmd
}

// StartDaemon starts an engine with its own identity and storage, and no networks. Its containers keep
// running while it is stopped. It needs root and dockerd.
func StartDaemon(t testing.TB) *Daemon {
	t.Helper()
	return startDaemon(t, daemonOptions{liveRestore: true})
}

// StartDaemonWithoutLiveRestore is StartDaemon for an engine that stops its containers when it stops.
func StartDaemonWithoutLiveRestore(t testing.TB) *Daemon {
	t.Helper()
	return startDaemon(t, daemonOptions{})
}

// StartMappingDaemon starts an engine whose containers have user namespaces with 65,536 ids.
func StartMappingDaemon(t testing.TB) *Daemon {
	t.Helper()
	return startDaemon(t, daemonOptions{liveRestore: true, mapUsers: true})
}

// Runtime is a container runtime of a test's engine.
type Runtime struct {
	Path string   `json:"path"`
	Args []string `json:"runtimeArgs,omitempty"`
}

// StartDaemonWithRuntimes is StartDaemon for an engine with additional runtimes, by name.
func StartDaemonWithRuntimes(t testing.TB, runtimes map[string]Runtime) *Daemon {
	t.Helper()
	return startDaemon(t, daemonOptions{liveRestore: true, runtimes: runtimes})
}

type daemonOptions struct {
	liveRestore, mapUsers bool
	runtimes              map[string]Runtime
}

func startDaemon(t testing.TB, o daemonOptions) *Daemon {
	t.Helper()
	// Not t.TempDir: a socket's path must have at most 108 bytes.
	dir, err := os.MkdirTemp("", "dockerd") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	d := &Daemon{t: t, dir: dir, mapUsers: o.mapUsers}
	if o.mapUsers {
		if err := os.Chmod(dir, 0o711); err != nil { // the root of the user namespaces must be able to traverse it
			t.Fatal(err)
		}
	}
	// Up to Engine 20.10, the key determines the engine's id.
	config, err := json.Marshal(map[string]any{
		"deprecated-key-path": filepath.Join(dir, "key.json"), "live-restore": o.liveRestore, "runtimes": o.runtimes,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "daemon.json"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.remove)
	d.Start()
	return d
}

// remove stops the engine and deletes all its data.
func (d *Daemon) remove() {
	if d.process == nil {
		d.Start()
	}
	list := exec.Command("docker", "--host", d.Host(), "ps", "-aq")
	ids, err := list.Output()
	if err != nil {
		d.t.Errorf("list what is left on the test's engine: %v", err)
	}
	for _, id := range strings.Fields(string(ids)) {
		if out, err := exec.Command("docker", "--host", d.Host(), "rm", "-f", id).CombinedOutput(); err != nil {
			d.t.Errorf("remove container %s of the test's engine: %v\n%s", id, err, out)
		}
	}
	d.Stop()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		d.t.Error(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if at := strings.Fields(line)[1]; strings.HasPrefix(at, d.dir+"/") {
			if err := syscall.Unmount(at, syscall.MNT_DETACH); err != nil {
				d.t.Errorf("unmount %s: %v", at, err)
			}
		}
	}
	if err := os.RemoveAll(d.dir); err != nil {
		d.t.Error(err)
	}
}

// Host is the engine's address.
func (d *Daemon) Host() string { return "unix://" + filepath.Join(d.dir, "s") }

// Start starts the engine with its previous data, and waits until it answers.
func (d *Daemon) Start() {
	d.t.Helper()
	log, err := os.OpenFile(filepath.Join(d.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = log.Close() }() // the process has its own copy
	args := []string{"dockerd", "--host", d.Host(), "--config-file", filepath.Join(d.dir, "daemon.json"),
		"--data-root", filepath.Join(d.dir, "data"), "--exec-root", filepath.Join(d.dir, "exec"),
		"--pidfile", filepath.Join(d.dir, "pid"), "--bridge", "none", "--iptables=false", "--ip6tables=false"}
	if d.mapUsers {
		args = append(d.ownUsers(), append(args, "--userns-remap", mappedUser)...)
	}
	d.process = exec.Command(args[0], args[1:]...)
	d.process.Stdout, d.process.Stderr = log, log
	// A separate network namespace: an engine without a bridge removes an existing one, which here would be the main
	// engine's.
	d.process.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := d.process.Start(); err != nil {
		d.t.Fatalf("start dockerd: %v (install docker.io)", err)
	}
	api, err := dockerapi.Connect(d.Host(), "")
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = api.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		if _, err := api.Ping(ctx); err == nil {
			return
		}
		select {
		case <-ctx.Done():
			text, _ := os.ReadFile(filepath.Join(d.dir, "log"))
			d.t.Fatalf("dockerd does not answer:\n%s", text)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// mappedUser is the user whose subordinate ids containers get.
const mappedUser = "sandbox-test-remap"

// ownUsers returns a command that runs the engine with a private /etc that contains that user.
func (d *Daemon) ownUsers() []string {
	const script = `set -e
mkdir -p "$0/etc" "$0/work"
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$0/etc,workdir=$0/work" /etc
echo "$1:x:64999:64999::/:/bin/false" >>/etc/passwd
echo "$1:x:64999:" >>/etc/group
echo "$1:1000000:65536" >/etc/subuid
echo "$1:1000000:65536" >/etc/subgid
shift
exec "$@"`
	return []string{"unshare", "--mount", "sh", "-c", script, d.dir, mappedUser}
}

// Connect returns a client of the engine.
func (d *Daemon) Connect() *dockerapi.Client {
	d.t.Helper()
	api, err := dockerapi.Connect(d.Host(), "")
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = api.Close() }) // only closes idle connections
	return api
}

// Busybox creates the image of dockertest.Busybox on this engine.
func (d *Daemon) Busybox() string {
	d.t.Helper()
	return ensure(d.t, d.Connect(), BusyboxFiles(d.t), busyboxPath)
}

// Stop stops the engine as a service manager does.
func (d *Daemon) Stop() {
	d.t.Helper()
	if d.process == nil {
		return
	}
	if err := d.process.Process.Signal(syscall.SIGTERM); err != nil {
		d.t.Error(err)
	}
	_ = d.process.Wait() // the signal ended it
	d.process = nil
}
