package executortest

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// startCommands makes several clients run a command once per attack attempt.
func (a *attacks) startCommands(t *testing.T, h driver.Handle, ended func(i int, res shell),
	command func(i int) []string) {
	t.Helper()
	var starting errgroup.Group
	starting.SetLimit(clients)
	var broken atomic.Bool
	for i := range a.attempts {
		starting.Go(func() error {
			if broken.Load() {
				return nil
			}
			r, err := sandbox.ExecRequest{Command: command(i)}.Normalize()
			if err != nil {
				return err
			}
			res, err := a.x.Exec(t.Context(), h, r)
			if err != nil {
				broken.Store(true)
				return fmt.Errorf("command %d: %w", i, err)
			}
			ended(i, shell{res})
			return nil
		})
	}
	if err := starting.Wait(); err != nil {
		t.Error(err)
	}
}

// reachForeign attacks process 1 and everything that does not belong to the sandbox's own user, while commands start.
// It tries signals, tracing, /proc files, memory, limits and schedulers.
func reachForeign(t *testing.T, a *attacks) {
	h := a.attacked(t)
	id := a.start(t, h, "reach", enoughFile, strconv.Itoa(a.attempts))
	a.startCommands(t, h, func(i int, res shell) {
		// A process may become the attacker's own between a look at it and a signal. The signal then ends it, and the result
		// says so.
		if res.ExitCode != 0 && res.ExitCode <= 128 {
			t.Errorf("command %d ended with %d: %s", i, res.ExitCode, res.Stderr)
		}
	}, func(int) []string { return []string{"true"} })
	said, counts := a.enough(t, h, id)
	var rounds int
	for line := range strings.Lines(said) {
		_, _ = fmt.Sscanf(line, "rounds %d", &rounds) // only one line has it
	}
	if rounds < a.attempts {
		t.Errorf("only %d rounds of attempts were made", rounds)
	}
	attempts := 0
	for name, c := range counts {
		attempts += c.attempts
		if c.successes != 0 {
			t.Errorf("%s: %d of %d attempts succeeded, first on %s", name, c.successes, c.attempts, c.first)
		}
	}
	t.Logf("%d attempts of %d kinds in %d rounds", attempts, len(counts), rounds)
	// An attack that fails even on the attacker's own child proves nothing.
	for _, name := range []string{
		"kill", "tgkill", "pidfd_send_signal", "sched_setscheduler", "sched_setaffinity", "setpriority",
		"ioprio_set", "prlimit-nofile", "read-environ", "read-fd", "read-maps", "write-oom_score_adj",
	} {
		if !strings.Contains(said, "control "+name+" possible=true\n") {
			t.Errorf("%s does not succeed on a process of the attacker's own", name)
		}
	}
}

// traceStart tries to trace each command and to open its memory from its start. The command's file is unreadable, which
// forbids tracing after execve. A success means that the attack reached the process before that.
func traceStart(t *testing.T, a *attacks) {
	h := a.attacked(t)
	a.wantOutput(t, h, "cp hostile verdict && chmod 0111 verdict", "")
	id := a.start(t, h, "trace", enoughFile)
	// A command executes its program within a millisecond of its fork. So the attack meets only 2 to 25 % of the commands
	// before that, depending on the load. Too few prove nothing.
	const mostRounds = 10
	enough, met, commands := a.attempts/20, 0, 0
	for ; met < enough && commands < mostRounds*a.attempts; commands += a.attempts {
		a.startCommands(t, h, func(i int, res shell) {
			if res.ExitCode != 1 {
				t.Errorf("command %d exits with 1, and is said to have ended with %d: %s", i, res.ExitCode, res.Stderr)
			}
		}, func(int) []string { return []string{"/workspace/verdict", "exit", "1"} })
		said, err := a.said(t, h, id)
		must(t, err)
		met = strings.Count(said, "met ")
	}
	_, counts := a.enough(t, h, id)
	t.Logf("the attack met %d of %d commands: %+v", met, commands, counts)
	if met < enough {
		t.Errorf("the attack met %d of %d commands: it was too slow to prove anything", met, commands)
	}
	for _, name := range []string{"seize", "open-memory"} {
		if c := counts[name]; c.successes != 0 || c.attempts < a.attempts {
			t.Errorf("%s: %d of %d attempts succeeded before the command ran, first on %s",
				name, c.successes, c.attempts, c.first)
		}
	}
}

// peekAtCommands: sandbox code may read and end other commands of the same user. The reported result must still be the
// started process's.
func peekAtCommands(t *testing.T, a *attacks) {
	h := a.attacked(t)
	id := a.start(t, h, "peek", enoughFile)
	a.startCommands(t, h, func(i int, res shell) {
		want := i % 100
		if i%10 == 9 {
			want = 128 + 9
		}
		if res.ExitCode != want || res.TimedOut {
			t.Errorf("command %d is said to have ended with %d, not %d: %s", i, res.ExitCode, want, res.Stderr)
		}
	}, func(i int) []string {
		if i%10 == 9 { // another process of the same user ends it
			return []string{"sh", "-c", "(kill -KILL $$) & sleep 100; exit 0"}
		}
		return []string{"sh", "-c", fmt.Sprint("exit ", i%100)}
	})
	_, counts := a.enough(t, h, id)
	t.Logf("the variables and the memory of other commands: %+v", counts)
}
