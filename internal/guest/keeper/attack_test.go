//go:build linux

package keeper_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
)

// TestTheKeeperHasOnlyWhatItNeeds reads the kernel's status of every thread.
func TestTheKeeperHasOnlyWhatItNeeds(t *testing.T) {
	b := start(t, options{keep: []string{"-disk", "100000000"}})
	out, _, _ := b.run(t, `for p in 1 $(ps | awk '/[g]uest broker/ {print $1}'); do
		for s in /proc/$p/task/*/status; do
			echo "$p" $(grep -E '^(Uid|Gid|Groups|CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs):' $s); done; done`)
	threads := map[string]int{}
	for _, l := range strings.Split(strings.TrimSpace(out), "\n") {
		pid, rest, _ := strings.Cut(l, " ")
		caps, inherited := "00000000000001e0", "0000000000000000"
		if pid != "1" {
			pid, caps, inherited = "broker", "00000000000000c0", "00000000000000c0"
		}
		threads[pid]++
		fs := "65533"
		if strings.Contains(rest, "65533 65533 65533 1879050930") { // a thread that works on files
			fs = "1879050930"
			threads["files of "+pid]++
		}
		want := fmt.Sprintf("Uid: 65533 65533 65533 %s Gid: 65533 65533 65533 %s Groups: "+
			"CapInh: %s CapPrm: %s CapEff: %s CapBnd: 00000000000001e0 CapAmb: %s NoNewPrivs: 1",
			fs, fs, inherited, caps, caps, inherited)
		if rest != want {
			t.Errorf("process %s:\n%s, want\n%s", pid, rest, want)
		}
	}
	if threads["1"] < 3 || threads["broker"] < 3 || threads["files of 1"] != 1 {
		t.Errorf("threads: %v of %q", threads, out)
	}
}

// TestCodeOfTheSandboxCannotTouchTheGuest tries everything that a process may do to another.
func TestCodeOfTheSandboxCannotTouchTheGuest(t *testing.T) {
	for name, uid := range map[string]int{"its own user": user, "user 0": -1} {
		t.Run(name, func(t *testing.T) {
			b := start(t, options{uid: uid, run: []string{"-v", attacker(t) + ":/attacker:ro"}})
			out, errOut, res := b.exec(t, channel.Request{ID: "attack", Exec: &channel.Exec{
				Args: []string{"/attacker", "-test.run", "TestAttacker", "-test.v"}, Cwd: "/workspace", Timeout: 50 * time.Second,
				Env: map[string]string{"ATTACK": "guest"},
			}}, "")
			if res.ExitCode != 0 || !strings.Contains(out, "attempts: ") || strings.Contains(out, "SUCCESS") {
				t.Errorf("%s %s %+v", out, errOut, res)
			}
			t.Log(out)
		})
	}
}

// TestNoCommandIsHeldBeforeItBegins lets sandbox code stop every process that it finds while commands start.
func TestNoCommandIsHeldBeforeItBegins(t *testing.T) {
	b := start(t, options{run: []string{"-v", attacker(t) + ":/attacker:ro"}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := b.call(channel.Request{Op: channel.OpExec, ID: "attack", Exec: &channel.Exec{
			Args: []string{"/attacker", "-test.run", "TestAttacker"}, Cwd: "/workspace", Timeout: 45 * time.Second,
			Env: map[string]string{"ATTACK": "stop"},
		}}, channel.Streams{})
		if err != nil {
			t.Error(err)
		}
	}()
	held, forged, slowest := 0, 0, time.Duration(0)
	for i := range 200 {
		began := time.Now()
		var errOut bytes.Buffer
		res, err := b.call(channel.Request{Op: channel.OpExec, ID: "false " + strconv.Itoa(i), Exec: &channel.Exec{
			Args: []string{"/bin/false"}, Cwd: "/workspace", Timeout: 200 * time.Millisecond}}, channel.Streams{Stderr: &errOut})
		if err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, time.Since(began))
		switch {
		case res.ExitCode == 0:
			forged++
		case res.ExitCode != 1:
			held++ // stopped, and ended in time
		}
	}
	t.Logf("of 200 commands, %d were stopped and ended in time; the slowest took %s", held, slowest)
	if forged > 0 || slowest > 10*time.Second {
		t.Errorf("%d results were forged; the slowest took %s", forged, slowest)
	}
	if res, err := b.call(channel.Request{Op: channel.OpEnd, ID: "attack"}, channel.Streams{}); err != nil ||
		res.Problem != "" {
		t.Errorf("%+v, %v", res, err)
	}
	<-done
}

func TestAForkBombEnds(t *testing.T) {
	b := start(t, options{})
	done := make(chan wire.Result)
	go func() {
		r := channel.Request{
			Op:   channel.OpExec,
			ID:   "bomb",
			Exec: line(`bomb(){ bomb|bomb& bomb; }; bomb 2>/dev/null & while :; do :; done`),
		}
		res, err := b.call(r, channel.Streams{})
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	grown := 0
	if !testwait.Poll(20*time.Second, func() bool {
		grown = max(grown, strings.Count(b.docker(t, "top", b.name), "\n")) // a shell that cannot fork ends
		return grown >= 40
	}) {
		t.Errorf("the bomb has grown to %d processes only", grown)
	}
	began := time.Now()
	if res, err := b.call(channel.Request{Op: channel.OpEnd, ID: "bomb"}, channel.Streams{}); err != nil ||
		res.Problem != "" {
		t.Errorf("%+v, %v", res, err)
	}
	<-done
	if out, errOut, res := b.run(t, "ps | wc -l"); res.ExitCode != 0 || len(out) > 3 {
		t.Errorf("%q processes after %s: %q, %+v", out, time.Since(began), errOut, res)
	}
}

// TestTheDeadlineHoldsAgainstSpinners starts more spinners than processors, with their user's best priority.
func TestTheDeadlineHoldsAgainstSpinners(t *testing.T) {
	const lifetime = 15 * time.Second
	began := time.Now()
	b := start(t, options{lifetime: lifetime})
	b.run(t, "for i in $(seq 100); do (while :; do :; done) >/dev/null 2>&1 & done; renice -n -5 1; true")
	out, err := exec.Command("docker", "wait", b.name).CombinedOutput()
	if late := time.Since(began) - lifetime; err != nil || strings.TrimSpace(string(out)) != "124" ||
		late > 5*time.Second {
		t.Errorf("exit code %s, %v, %s after the deadline", out, err, late)
	} else {
		t.Logf("the container has ended %s after the deadline", late)
	}
}

// TestNothingIsLostWithTheBroker kills the broker repeatedly while commands write.
func TestNothingIsLostWithTheBroker(t *testing.T) {
	b := start(t, options{lifetime: time.Minute})
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			id := "writer " + strconv.Itoa(i)
			script := fmt.Sprintf("echo run >> runs%d; i=0; "+
				"while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); [ $((i%%100)) = 0 ] && sleep 0.2; done", i)
			var want bytes.Buffer
			for j := range 3000 {
				fmt.Fprintln(&want, "line", j)
			}
			var got bytes.Buffer
			res, err := b.call(channel.Request{Op: channel.OpExec, ID: id, Exec: line(script)}, channel.Streams{Stdout: &got})
			for tries := 0; err != nil || res.Problem != ""; tries++ {
				if tries > 100 {
					t.Errorf("%s: %+v, %v", id, res, err)
					return
				}
				r := channel.Request{Op: channel.OpFollow, ID: id, Follow: &channel.Follow{StdoutOffset: int64(got.Len())}}
				res, err = b.call(r, channel.Streams{Stdout: &got})
			}
			if res.ExitCode != 0 || sha256.Sum256(got.Bytes()) != sha256.Sum256(want.Bytes()) {
				t.Errorf("%s: %d bytes of %d, %+v", id, got.Len(), want.Len(), res)
			}
		})
	}
	b.run(t, "until [ -e runs0 -a -e runs1 -a -e runs2 -a -e runs3 ]; do sleep 0.05; done")
	const kills = 5
	for range kills {
		time.Sleep(700 * time.Millisecond) //nolint:forbidigo // the commands write for a while
		pid := ""
		for pid == "" {
			pid = b.broker(t)
		}
		if out, err := exec.Command("kill", "-KILL", pid).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
	all.Wait()
	if out, _, _ := b.run(t, "cat runs*"); out != strings.Repeat("run\n", 4) {
		t.Errorf("commands ran as %q", out)
	}
}

// broker returns the pid of the broker on the host, "" if there is none.
func (b *box) broker(t *testing.T) string {
	t.Helper()
	for _, l := range strings.Split(b.docker(t, "top", b.name, "-eo", "pid,args"), "\n") {
		if pid, args, _ := strings.Cut(strings.TrimSpace(l),
			" "); strings.HasPrefix(strings.TrimSpace(args), "guest broker") {
			return pid
		}
	}
	return ""
}
