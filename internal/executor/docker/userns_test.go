package docker_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/executortest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// mappingDaemon starts an engine with user namespaces, if this machine can.
func mappingDaemon(t *testing.T) *dockertest.Daemon {
	t.Helper()
	if _, err := exec.LookPath("dockerd"); err != nil || os.Getuid() != 0 {
		t.Skip("starts an engine of its own: needs root and dockerd")
	}
	return dockertest.StartMappingDaemon(t)
}

func TestSandboxesWorkInUserNamespaces(t *testing.T) {
	t.Parallel()
	d := mappingDaemon(t)
	w := newWorldAt(t, newExecutorOn(t, d.Host()), d.Connect(), d.Busybox(), func(*sandbox.EnvironmentSpec) {})
	spec := w.spec()
	spec.Resources.DiskMB = 1024
	must(t, w.x.Spawn(t.Context(), spec))
	h, is := spec.Handle, sandbox.Confinement{}.Identity(spec.SandboxID, true)

	t.Run("its user is one that the namespace maps", func(t *testing.T) {
		want := fmt.Sprintf("%d:%d sandbox\n%d:%d\n", is.UID, is.GID, is.UID, is.GID)
		if got := w.exec(t, h, "sh", "-c", "echo $(id -u):$(id -g) $(whoami); stat -c %u:%g /workspace"); got != want ||
			is.UID < 20_000 || is.UID > 59_998 {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := w.exec(t, h, "awk", "{print $1, $3}", "/proc/self/uid_map"); got != "0 65536\n" {
			t.Errorf("the namespace maps %q", got)
		}
	})
	t.Run("files go both ways", func(t *testing.T) {
		var in bytes.Buffer
		tw := tar.NewWriter(&in)
		must(t, errors.Join(tw.WriteHeader(&tar.Header{Name: "dir/board", Mode: 0o600, Size: 4, Uid: 7, Gid: 7}),
			func() error { _, err := tw.Write([]byte("hex\n")); return err }(), tw.Close()))
		must(t, w.x.CopyTo(t.Context(), h, "/data", &in))
		if got := w.exec(t, h, "sh", "-c", "cat /data/dir/board; stat -c %u:%g /data/dir/board; echo more >> "+
			"/data/dir/board"); got != fmt.Sprintf("hex\n%d:%d\n", is.UID, is.GID) {
			t.Errorf("got %q", got)
		}
		out, err := w.x.CopyFrom(t.Context(), h, "/data/dir/board")
		must(t, err)
		tr := tar.NewReader(out)
		_, err = tr.Next()
		must(t, err)
		content, err := io.ReadAll(tr)
		must(t, errors.Join(err, out.Close()))
		if string(content) != "hex\nmore\n" {
			t.Errorf("read %q", content)
		}
	})
	t.Run("process 1 and its broker are out of reach", func(t *testing.T) {
		const script = `set -- $(awk '/^Uid/ && $2 == 65533 {print FILENAME}' /proc/[0-9]*/status | cut -d/ -f3); echo $#; for p; do kill -STOP $p 2>/dev/null && echo stopped $p; kill -KILL $p 2>/dev/null && echo killed $p; cat /proc/$p/mem >/dev/null 2>&1 && echo read $p; done
			renice -n 19 -p 1 >/dev/null 2>&1 && echo reniced; grep -c '^Cap.*:.*[1-9a-f]' /proc/self/status; awk '/^Uid/{print $2}' /proc/1/status`
		// Including the starter and the supervisor of commands.
		if got := w.exec(t, h, "sh", "-c", script+"; true"); got != "4\n0\n65533\n" {
			t.Errorf("the sandbox says %q", got)
		}
	})
	t.Run("its socket leads to the reconciler alone", func(t *testing.T) {
		if got := w.exec(t, h, "sh", "-c", "touch /.sandbox-channel/x /etc/passwd 2>/dev/null && echo wrote; "+
			"nc local:/.sandbox-channel/channel.sock </dev/null 2>/dev/null && echo connected; true"); got != "" {
			t.Errorf("the sandbox says %q", got)
		}
	})
	t.Run("it sleeps and wakes", func(t *testing.T) {
		for _, mode := range []sandbox.SleepMode{sandbox.SleepPause, sandbox.SleepStop} {
			must(t, w.x.Sleep(t.Context(), h, mode))
			wake(t, w.x, h)
			if got := w.exec(t, h, "cat", "/data/dir/board"); !strings.HasPrefix(got, "hex\n") {
				t.Errorf("after %s: %q", mode, got)
			}
		}
	})
	t.Run("the audit finds nothing", func(t *testing.T) {
		if found, rules := w.findings(t, h.SandboxID); len(found) != 0 || rules < 30 {
			t.Errorf("%d rules, findings: %v", rules, found)
		}
	})
	t.Run("it ends", func(t *testing.T) {
		must(t, w.x.Kill(t.Context(), h))
		if _, err := w.x.Inspect(t.Context(), h); sandbox.CodeOf(err) != sandbox.NotFound {
			t.Errorf("afterwards: %v", err)
		}
	})
}

func TestContractInUserNamespaces(t *testing.T) {
	if os.Getenv("SANDBOX_TEST_LONG") == "" {
		t.Skip("takes minutes: set SANDBOX_TEST_LONG=1, or run make test-long")
	}
	d := mappingDaemon(t)
	cfg := contractOn(d.Connect(), d.Host(), d.Busybox())
	cfg.FewAttempts = true
	// The kernel also counts these for the user that created the namespace, which is the engine's.
	cfg.SharedLimits = []string{"inotify-instances", "inotify-watches", "message-queues"}
	cfg.Without = map[string]string{"Network": "the test's engine has no networks"}
	executortest.Run(t, cfg)
}
