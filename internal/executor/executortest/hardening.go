package executortest

import (
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

func testHardening(t *testing.T, cfg Config) {
	w := newWorld(t, cfg)
	w.needExec(t)
	shared := w.spawn(t)
	for _, row := range []struct{ name, script, want string }{
		{"workspace belongs to the user", "stat -c %u:%g /workspace /data /workspace/config.json", "1000:1000\n1000:1000\n1000:1000\n"},
		{"no capability", "grep -E '^Cap(Eff|Prm|Bnd|Inh|Amb)' /proc/self/status | tr -s '\\t ' ' ' | cut -d' ' -f2 | sort -u", "0000000000000000\n"},
		{"no capability of process 1", "grep -E '^Cap(Eff|Prm|Bnd)' /proc/1/status | tr -s '\\t ' ' ' | cut -d' ' -f2 | sort -u", "0000000000000000\n"},
		{"no new privileges", "grep NoNewPrivs /proc/self/status | tr -d '\\t'", "NoNewPrivs:1\n"},
		{"seccomp filters", "grep '^Seccomp:' /proc/self/status | tr -d '\\t'", "Seccomp:2\n"},
		{"read-only root", "touch /etc/x /bin/x /x 2>&1 | grep -c 'Read-only'", "3\n"},
		{"the guest cannot be replaced", "echo > /.sandbox/guest; rm /.sandbox/guest; ls /.sandbox", "guest\n"},
		{"commands die of memory before process 1", "[ $(cat /proc/self/oom_score_adj) -gt $(cat /proc/1/oom_score_adj) ] && echo yes", "yes\n"},
		{"nothing in /tmp runs", "cp /bin/busybox /tmp/x && chmod 755 /tmp/x && /tmp/x true 2>/dev/null; echo $?", "126\n"},
		{"/tmp is 512 MB", "df -m /tmp | tail -1 | tr -s ' ' | cut -d' ' -f2", "512\n"},
		{"programs in /workspace run", "cp /bin/busybox /workspace/busybox && /workspace/busybox echo ran", "ran\n"},
		{"no network but loopback", "ls /sys/class/net", "lo\n"},
		{"no engine socket", "ls /var/run/docker.sock /run/docker.sock 2>/dev/null", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if res := w.sh(t, shared, row.script); res.stdout() != row.want {
				t.Errorf("got %q, want %q (%s)", res.stdout(), row.want, res.Stderr)
			}
		})
	}
	t.Run("another user has no capability either", func(t *testing.T) {
		t.Parallel()
		res := w.exec(t, shared, sandbox.ExecRequest{Command: []string{"sh", "-c", "id -u; grep CapEff /proc/self/status | tr -d '\\t'"}, User: "0:0"})
		if want := "0\nCapEff:0000000000000000\n"; res.stdout() != want {
			t.Errorf("as user 0: %q, want %q", res.stdout(), want)
		}
	})
	t.Run("a fork bomb ends with its timeout", func(t *testing.T) {
		t.Parallel()
		if !w.x.Capabilities().PIDLimit {
			t.Skip("the backend limits no PIDs")
		}
		forkBomb(t, w)
	})
}

// forkBomb uses up every process id that the sandbox may have.
func forkBomb(t *testing.T, w *world) {
	h := w.spawn(t)
	res := w.exec(t, h, sandbox.ExecRequest{
		Command: []string{"sh", "-c", "f() { f | f & }; f; sleep 7005"}, Timeout: sandbox.Duration(3 * time.Second),
	})
	if !res.TimedOut || !strings.Contains(string(res.Stderr), "fork") {
		t.Errorf("the bomb ended with exit code %d, timed out %t, and %.200q", res.ExitCode, res.TimedOut, res.Stderr)
	}
	if got := w.sh(t, h, "echo still here").stdout(); got != "still here\n" {
		t.Errorf("after the bomb the sandbox says %q", got)
	}
	u, err := w.x.Usage(t.Context(), h)
	must(t, err)
	if limit := resources().PIDs; u.PIDs > limit/2 {
		t.Errorf("%d processes are left of a bomb limited to %d", u.PIDs, limit)
	}
}
