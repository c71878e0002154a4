package executortest

import (
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// beside runs a bomb in one sandbox while another one works, and returns how the bomb ended. It must not affect the
// other one.
func beside(t *testing.T, w *world, r sandbox.ExecRequest) (bombed driver.Handle, res shell) {
	t.Helper()
	bombed, other := w.spawn(t), w.spawn(t)
	ended := make(chan shell, 1)
	go func() { ended <- w.exec(t, bombed, r) }()
	for {
		select {
		case res = <-ended:
			return bombed, res
		default:
		}
		if got := w.sh(t, other, "echo busy > /workspace/f && cat /workspace/f | sort"); got.stdout() != "busy\n" ||
			got.OOMKilled {
			t.Errorf("the sandbox beside it says %q (%s)", got.stdout(), got.Stderr)
		}
	}
}

// forkBomb uses up all process ids of the sandbox.
func forkBomb(t *testing.T, w *world) {
	if !w.x.Capabilities().PIDLimit {
		t.Skip("the backend limits no PIDs")
	}
	h, res := beside(t, w, sandbox.ExecRequest{
		Command: []string{"sh", "-c", "f() { f | f & }; (f) & exec sleep 7005"}, Timeout: sandbox.Duration(3 * time.Second),
	})
	if !res.TimedOut || !strings.Contains(string(res.Stderr), "fork") {
		t.Errorf("the bomb ended with exit code %d, timed out %t, and %.200q", res.ExitCode, res.TimedOut, res.Stderr)
	}
	w.wantOutput(t, h, "echo still here", "still here\n")
	u, err := w.x.Usage(t.Context(), h)
	must(t, err)
	if limit := w.resources().PIDs; u.PIDs > limit/2 {
		t.Errorf("%d processes are left of a bomb limited to %d", u.PIDs, limit)
	}
}

func memoryBomb(t *testing.T, w *world) {
	h, res := beside(t, w,
		sandbox.ExecRequest{Command: []string{"sh", "-c", "tail /dev/zero"}, Timeout: sandbox.Duration(patience)})
	if !res.OOMKilled || res.TimedOut || res.ExitCode == 0 {
		t.Errorf("the bomb ended with exit code %d, out of memory %t, timed out %t",
			res.ExitCode, res.OOMKilled, res.TimedOut)
	}
	w.wantOutput(t, h, "echo still here", "still here\n")
}

// tmpBomb fills every directory in memory. Killing the writer does not free their content, so together they must leave
// process 1 enough memory.
func tmpBomb(t *testing.T, w *world) {
	h := w.spawn(t)
	res := w.sh(t, h,
		"for d in /tmp /run /dev/shm /run/secrets; do dd if=/dev/zero of=$d/bomb bs=64k 2>&1 | grep -o 'No space'; done")
	if res.OOMKilled || res.stdout() != "No space\nNo space\nNo space\nNo space\n" {
		t.Errorf("the bomb says %q, out of memory %t (%s)", res.stdout(), res.OOMKilled, res.Stderr)
	}
	w.wantOutput(t, h, "echo still here", "still here\n")
	w.wantState(t, h, sandbox.StateRunning)
}

// fullTmp: the sandbox's memory and its volumes are separate.
func fullTmp(t *testing.T, w *world) {
	h := w.spawn(t)
	w.sh(t, h, "dd if=/dev/zero of=/run/full bs=1M 2>/dev/null")
	must(t, w.x.CopyTo(t.Context(), h, "/workspace", pack(t, file("in", "taken"))))
	must(t, w.x.PutSecrets(t.Context(), h, map[string]sandbox.Secret{"token": secretValue}))
	w.wantOutput(t, h, "cat /workspace/in /run/secrets/token", "taken"+secretValue)
}

func descriptorBomb(t *testing.T, w *world) {
	h := w.spawn(t)
	res := w.sh(t, h, "ulimit -n 64; i=3; while eval \"exec $i</dev/null\" 2>/dev/null; do i=$((i+1)); [ $i -gt 200 ] "+
		"&& break; done; echo $i")
	if got := strings.TrimSpace(res.stdout()); len(got) > 2 {
		t.Errorf("a command limited to 64 files has opened %s (%s)", got, res.Stderr)
	}
	w.wantOutput(t, h, "echo still here", "still here\n")
}

// fileSize: a single file cannot exceed the disk limit, even between the checks of process 1.
func fileSize(t *testing.T, w *world) {
	h := w.spawn(t, func(s *driver.SandboxSpec) { s.Resources.DiskMB = 2 })
	bounded := func(file string) {
		t.Helper()
		var got string
		// When the use exceeds the limit, process 1 kills the programs once. This command may be one of them.
		eventually(t, "process 1 lets other programs be", func() bool {
			got = w.sh(t, h, "[ $(wc -c < "+file+") -le 2000000 ] && echo bounded || wc -c < "+file).stdout()
			return got != ""
		})
		if got != "bounded\n" {
			t.Errorf("%s: %q", file, got)
		}
	}
	w.sh(t, h, "dd if=/dev/zero of=/workspace/large bs=65536 count=64") // process 1 may end it too
	bounded("/workspace/large")
	w.wantOutput(t, h,
		"rm /workspace/large; truncate -s 1G /workspace/sparse 2>/dev/null; wc -c < /workspace/sparse", "0\n")
	err := w.x.CopyTo(t.Context(), h, "/workspace", sparse("hole", 1<<40))
	wantError(t, err, sandbox.Failed, sandbox.ReasonWriteFailed)
	bounded("/workspace/hole")
}

func otherSandbox(t *testing.T, w *world) {
	mine, other := w.spawn(t), w.spawn(t)
	w.sh(t, mine, "echo mine > /workspace/mark-7105; echo mine > /data/mark-7105; echo mine > /tmp/mark-7105; sleep "+
		"7105 >/dev/null 2>&1 &")
	w.wantOutput(t, mine, "cat /workspace/mark-7105 /data/mark-7105 /tmp/mark-7105", "mine\nmine\nmine\n")
	w.wantOutput(t, other,
		"find / -name 'mark-[7]105' 2>/dev/null; grep -l 'sleep.[7]105' /proc/[0-9]*/cmdline 2>/dev/null; true", "")
	if n := w.alive(t, mine, "sleep 7105"); n == 0 {
		t.Error("the process that was to be hidden does not run")
	}
}
