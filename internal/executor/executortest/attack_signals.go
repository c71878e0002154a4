package executortest

import (
	"context"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// clients is the number of concurrent operations in a sandbox under attack.
const clients = 8

// stopStarts stops all processes that the code may stop, while commands start and files are transferred. A command has
// the same user as the attack. So the attack may stop it once it runs, and the command then times out.
func stopStarts(t *testing.T, a *attacks) {
	h, other := a.attacked(t), a.attacked(t)
	watched, stop := context.WithCancel(t.Context())
	var beside sync.WaitGroup
	beside.Go(func() { a.undisturbed(watched, t, other, h) })
	defer func() { stop(); beside.Wait() }()

	id := a.start(t, h, "stop", enoughFile)
	a.await(t, h, id, "begun\n") // otherwise all operations may end before the attack begins
	var worked, timedOut, silent atomic.Int64
	var making errgroup.Group
	making.SetLimit(clients)
	for i := range a.attempts {
		making.Go(func() error {
			if silent.Load() >= clients {
				return nil // it hangs: more attempts prove nothing new
			}
			began := time.Now()
			done, err := a.operation(t, h, i)
			switch {
			case time.Since(began) >= answerIn:
				silent.Add(1)
				t.Errorf("operation %d has no answer after %s: %v", i, time.Since(began).Round(time.Millisecond), err)
			case err != nil:
				t.Errorf("operation %d: %v", i, err)
			case done:
				worked.Add(1)
			default:
				timedOut.Add(1)
			}
			return nil
		})
	}
	_ = making.Wait() // the operations report their own errors
	t.Logf("%d operations worked, %d commands were stopped until their timeout", worked.Load(), timedOut.Load())
	if t.Failed() {
		return
	}
	_, counts := a.enough(t, h, id)
	for _, name := range []string{"stop-all", "stop-started"} {
		c := counts[name]
		t.Logf("%s: %+v", name, c)
		if c.attempts < a.attempts || c.successes == 0 {
			t.Errorf("%s: %d attempts were made, and %d succeeded: that proves nothing", name, c.attempts, c.successes)
		}
	}
	a.recovers(t, h)
}

// operation makes one operation in a sandbox under attack, and reports whether it succeeded.
func (a *attacks) operation(t *testing.T, h driver.Handle, i int) (done bool, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), answerIn)
	defer cancel()
	name := "f" + strconv.Itoa(i)
	switch i % 4 {
	case 0, 1:
		res, err := a.run(t, h, "echo", name)
		return err == nil && res.stdout() == name+"\n" && res.ExitCode == 0, err
	case 2:
		f, err := sandbox.FileWrite{Path: name}.Normalize()
		if err == nil {
			err = a.x.WriteFile(ctx, h, f, strings.NewReader(name))
		}
		return err == nil, err
	default:
		if err := a.x.CopyTo(ctx, h, "/workspace", pack(t, file(name, name))); err != nil {
			return false, err
		}
		out, err := a.x.CopyFrom(ctx, h, "/workspace/"+name)
		if err != nil {
			return false, err
		}
		content, err := io.ReadAll(out)
		closing := out.Close()
		if err == nil {
			err = closing
		}
		return err == nil && strings.Contains(string(content), name), err
	}
}

// undisturbed uses a sandbox next to one under attack, until ctx ends. The attack must affect neither it nor the list
// of all sandboxes.
func (a *attacks) undisturbed(ctx context.Context, t *testing.T, other, attacked driver.Handle) {
	for n := 0; ctx.Err() == nil; n++ {
		began := time.Now()
		list, err := a.x.List(ctx, a.ref.LedgerID)
		if err == nil {
			_, err = a.x.Inspect(ctx, other)
		}
		var said string
		if err == nil {
			var r sandbox.ExecRequest
			if r, err = (sandbox.ExecRequest{Command: []string{"echo", "beside"}}).Normalize(); err == nil {
				var res sandbox.ExecResult
				res, err = a.x.Exec(ctx, other, r)
				said = string(res.Stdout)
			}
		}
		if ctx.Err() != nil {
			return
		}
		if took := time.Since(began); err != nil || said != "beside\n" || took > answerIn {
			t.Errorf("beside the attack: a list, a look and a command took %s, and say %q and %v", took, said, err)
			return
		}
		for _, o := range list {
			if o.Hangs {
				t.Errorf("in the list, sandbox %s hangs (%t: it is the one under attack)",
					o.SandboxID, o.SandboxID == attacked.SandboxID)
				return
			}
		}
	}
}

// stopKill ends sandboxes in which everything stoppable is stopped, while commands start.
func stopKill(t *testing.T, a *attacks) {
	a.killsInTime(t, func(t *testing.T, h driver.Handle) {
		a.start(t, h, "stop", enoughFile)
		ctx, cancel := context.WithCancel(t.Context())
		var busy sync.WaitGroup
		for range clients {
			busy.Go(func() {
				r, err := sandbox.ExecRequest{Command: []string{"true"}, Timeout: sandbox.Duration(time.Second)}.Normalize()
				for err == nil && ctx.Err() == nil {
					_, err = a.x.Exec(ctx, h, r) // until the sandbox is gone
				}
			})
		}
		t.Cleanup(func() { cancel(); busy.Wait() })
		for range 20 {
			if _, err := a.run(t, h, "true"); err != nil {
				t.Logf("a command: %v", err)
				break
			}
		}
	})
}

// killStarters: a command kills everything that it can reach. Its timeout still ends it with all its descendants.
func killStarters(t *testing.T, a *attacks) {
	const timeout, slack = 2 * time.Second, time.Second
	h := a.attacked(t)
	for n := range 3 {
		dir := "/workspace/mayhem-" + strconv.Itoa(n)
		a.wantOutput(t, h, "mkdir "+dir, "")
		ctx, cancel := context.WithTimeout(t.Context(), answerIn)
		r, err := sandbox.ExecRequest{
			Command: []string{hostilePath, "mayhem", dir},
			Timeout: sandbox.Duration(timeout),
		}.Normalize()
		must(t, err)
		began := time.Now()
		res, err := a.x.Exec(ctx, h, r)
		cancel()
		t.Logf("after %s: timed out %t, exit code %d, %v",
			time.Since(began).Round(time.Millisecond), res.TimedOut, res.ExitCode, err)
		if err == nil && !res.TimedOut {
			t.Errorf("the command has a result that is no timeout: %+v", res)
		}
		time.Sleep(time.Until(began.Add(timeout + 2*slack))) //nolint:forbidigo // the time in which what survived would tick
		for _, witness := range []string{"parent", "child"} {
			first, last := a.ticks(t, h, dir+"/"+witness)
			if ran := last.Sub(first); ran > timeout+slack || ran <= 0 {
				t.Errorf("the %s ran for %s of a timeout of %s", witness, ran, timeout)
			}
		}
		kills := a.sh(t, h, "wc -c < "+dir+"/kills; tr -cd + < "+dir+"/kills | wc -c").stdout()
		t.Logf("attempts to kill, and those that succeeded: %q", kills)
		if got, _ := strconv.Atoi(strings.Fields(kills + "0")[0]); got < 200 {
			t.Errorf("only %d attempts to kill were made", got)
		}
		if n := a.alive(t, h, hostilePath+" mayhem"); n != 0 {
			t.Errorf("%d commands are alive after their timeout", n)
		}
	}
}

// ticks returns the first and the last time in a file of ticks.
func (a *attacks) ticks(t *testing.T, h driver.Handle, name string) (first, last time.Time) {
	t.Helper()
	lines := strings.Fields(a.sh(t, h, "head -n 1 "+name+"; tail -n 1 "+name).stdout())
	if len(lines) != 2 {
		t.Fatalf("%s holds no ticks: %q", name, lines)
	}
	at := func(line string) time.Time {
		ms, err := strconv.ParseInt(line, 10, 64)
		must(t, err)
		return time.UnixMilli(ms)
	}
	return at(lines[0]), at(lines[1])
}
