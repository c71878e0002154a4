package executortest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// exhausted are the resources that a sandbox can exhaust, by the program's names.
var exhausted = []string{
	"pids", "memory", "cpu", "disk", "inotify-instances", "inotify-watches", "timers", "signals", "aio", "files",
	"pipes", "unix-sockets", "message-queues",
}

// exhaustAll exhausts one resource after another in one sandbox. Meanwhile a sandbox of another environment uses all of
// them.
func exhaustAll(t *testing.T, a *attacks) {
	elsewhere := &attacks{world: newWorld(t, a.Config), program: a.program}
	neighbour := elsewhere.attacked(t)
	for _, kind := range exhausted {
		t.Run(kind, func(t *testing.T) {
			if slices.Contains(a.SharedLimits, kind) {
				t.Skip("the kernel counts them for all sandboxes of this backend together")
			}
			h := a.attacked(t, func(s *driver.SandboxSpec) { s.Resources.DiskMB = 24 })
			a.usesAll(t, h)
			t.Cleanup(func() { a.kill(t, h) }) // even what could not be ended
			id := a.detached(t, h, named(t, hostilePath, "exhaust", kind))
			t.Logf("the attack says %q", a.holds(t, h, id))
			elsewhere.usesAll(t, neighbour)
			a.reopens(t, h, id)
			ctx, cancel := context.WithTimeout(t.Context(), answerIn)
			defer cancel()
			if err := a.x.EndExec(ctx, h, id, ""); err != nil {
				t.Errorf("end what uses up %s: %v", kind, err)
			}
			if kind == "disk" { // written files stay until they are removed
				must(t, a.x.RemoveFile(ctx, h, sandbox.FileRemoval{Path: "/workspace/fill"}))
			}
			a.recovers(t, h)
			if n := a.alive(t, h, hostilePath+" exhaust"); n != 0 {
				t.Errorf("%d processes of the attack are alive after its end", n)
			}
			a.usesAll(t, h)
		})
	}
}

// holds waits until an attack has exhausted its resource, or was killed for that.
func (a *attacks) holds(t *testing.T, h driver.Handle, id string) (said string) {
	t.Helper()
	eventually(t, "the attack has used up all there is", func() bool {
		var err error
		if said, err = a.said(t, h, id); err != nil {
			return false
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		res, err := a.x.Follow(ctx, h, sandbox.Replay{ID: id})
		ended := ctx.Err() == nil && (err == nil || sandbox.ReasonOf(err) == sandbox.ReasonExecFailed)
		if ended {
			said += fmt.Sprintf("ended with %d, out of memory %t, %v", res.ExitCode, res.OOMKilled, err)
		}
		return ended || strings.Contains(said, "full ")
	})
	return said
}

// reopens breaks the channel of a sandbox whose resource is exhausted, and checks that a new one opens soon.
func (a *attacks) reopens(t *testing.T, h driver.Handle, id string) {
	t.Helper()
	if a.BreakChannel == nil {
		return
	}
	a.BreakChannel(t, h)
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), answerIn)
	defer cancel()
	_, err := a.x.Follow(ctx, h, sandbox.Replay{ID: id, Now: true})
	// The break of the connection hit the command.
	for ctx.Err() == nil && (sandbox.CodeOf(err) == sandbox.UnknownOutcome || sandbox.IsRetryable(err)) {
		_, err = a.x.Follow(ctx, h, sandbox.Replay{ID: id, Now: true})
	}
	took := time.Since(began)
	t.Logf("another channel opened after %s", took.Round(time.Millisecond))
	if err != nil || took > recoverIn {
		t.Errorf("%s after the channel broke: %v", took.Round(time.Millisecond), err)
	}
}

// usesAll checks that a sandbox soon gets one of each resource.
func (a *attacks) usesAll(t *testing.T, h driver.Handle) {
	t.Helper()
	var lacks []string
	for limit := time.Now().Add(recoverIn); ; {
		res, err := a.run(t, h, hostilePath, "use")
		lacks = nil
		for line := range strings.Lines(res.stdout()) {
			line = strings.TrimSpace(line)
			// No sandbox can use up a forbidden system call.
			refused := strings.HasPrefix(line, "use aio: operation not permitted") ||
				strings.HasPrefix(line, "use aio: function not implemented")
			if !strings.HasSuffix(line, ": <nil>") && !refused {
				lacks = append(lacks, line)
			}
		}
		if err == nil && res.ExitCode == 0 && len(lacks) == 0 && strings.Count(res.stdout(), "\n") == 12 {
			return
		}
		if time.Now().After(limit) {
			t.Errorf("a sandbox that should lack nothing says %q, exit code %d, %v (%s)", lacks, res.ExitCode, err, res.Stderr)
			return
		}
	}
}

// exhaustAsAnother: a command runs as a user that several sandboxes share. It uses up the processes of its own sandbox
// only, and the sandbox can recover.
func exhaustAsAnother(t *testing.T, a *attacks) {
	const user = "1234:1234"
	h, other := a.attacked(t), a.attacked(t)
	r := named(t, hostilePath, "exhaust", "pids")
	r.User, r.Timeout = user, sandbox.Duration(attackFor)
	id := a.detached(t, h, r)
	t.Logf("the attack says %q", a.holds(t, h, id))
	for range 10 {
		res := a.exec(t, other, sandbox.ExecRequest{
			Command: []string{"sh", "-c", "for i in $(seq 50); do sleep 5 & done; kill $(jobs -p); wait; id -u"}, User: user,
		})
		if res.ExitCode != 0 || res.stdout() != "1234\n" {
			t.Errorf("the same user in another sandbox says %q and %q", res.stdout(), res.Stderr)
		}
	}
	a.reopens(t, h, id)
	ctx, cancel := context.WithTimeout(t.Context(), answerIn)
	defer cancel()
	if err := a.x.EndExec(ctx, h, id, user); err != nil {
		t.Errorf("end what uses up the processes: %v", err)
	}
	a.recovers(t, h)
	if n := a.alive(t, h, hostilePath+" exhaust"); n != 0 {
		t.Errorf("%d processes of the attack are alive after its end", n)
	}
}

// bombs take processes or memory while they live.
var bombs = []string{"fork", "memory"}

func endBombs(t *testing.T, a *attacks) {
	for _, kind := range bombs {
		t.Run(kind, func(t *testing.T) {
			h := a.attacked(t)
			t.Cleanup(func() { a.kill(t, h) }) // even what could not be ended
			id := a.start(t, h, "bomb", kind)
			a.grown(t, h)
			a.reopens(t, h, id)
			ctx, cancel := context.WithTimeout(t.Context(), answerIn)
			defer cancel()
			began := time.Now()
			if err := a.x.EndExec(ctx, h, id, ""); err != nil {
				t.Errorf("end the bomb: %v", err)
			}
			if took := time.Since(began); took > recoverIn {
				t.Errorf("the end of the bomb took %s", took)
			}
			a.recovers(t, h)
			if n := a.alive(t, h, hostilePath+" bomb"); n != 0 {
				t.Errorf("%d processes of the bomb are alive after its end", n)
			}
		})
	}
}

func killBombs(t *testing.T, a *attacks) {
	for _, kind := range bombs {
		t.Run(kind, func(t *testing.T) {
			a.killsInTime(t, func(t *testing.T, h driver.Handle) {
				a.start(t, h, "bomb", kind)
				a.grown(t, h)
			})
		})
	}
}

// grown waits until a bomb has taken most of its resource, as seen from outside.
func (a *attacks) grown(t *testing.T, h driver.Handle) {
	t.Helper()
	eventually(t, "the bomb has grown", func() bool {
		u, err := a.x.Usage(t.Context(), h)
		return err == nil && (u.PIDs > 180 || u.MemoryBytes > 200<<20)
	})
}

// spinAtDeadline: no code runs long after the deadline, even if many processes compete for the processors. The end is
// observed from outside. The ticks prove that the processes ran until then.
func spinAtDeadline(t *testing.T, a *attacks) {
	const in, late = 15 * time.Second, 2 * time.Second
	var spec driver.SandboxSpec
	h := a.attacked(t, deadlineIn(in), func(s *driver.SandboxSpec) { spec = *s })
	var said ticker
	r, err := sandbox.ExecRequest{Command: []string{hostilePath, "spin", "100"}, Stdout: &said}.Normalize()
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), in+patience)
	defer cancel()
	_, err = a.x.Exec(ctx, h, r) // it ends with the sandbox
	t.Logf("the attack ended with %v", err)
	a.awaitStopped(t, h)
	o, err := a.x.Inspect(t.Context(), h)
	must(t, err)
	for name, c := range counted(said.head.String()) {
		t.Logf("%s of process 1: %+v", name, c)
	}
	if !strings.Contains(said.head.String(), "spinning 100\n") {
		t.Fatalf("not all processes were started: %s", said.head.String())
	}
	last := said.last()
	t.Logf("%s after the deadline the sandbox had stopped, the last tick is of %s after it",
		o.StoppedAt.Sub(spec.Deadline).Round(time.Millisecond), last.Sub(spec.Deadline))
	if stopped := o.StoppedAt.Sub(spec.Deadline); stopped > late || last.Sub(spec.Deadline) > late {
		t.Errorf("the sandbox stopped %s after its deadline, and its last tick is of %s after it",
			stopped, last.Sub(spec.Deadline))
	}
	if last.Before(spec.Deadline.Add(-late)) {
		t.Errorf("the last tick is of %s before the deadline: the attack had ended", spec.Deadline.Sub(last))
	}
}

// ticker keeps the first output of a ticking command, and its end.
type ticker struct {
	head strings.Builder
	tail []byte
}

func (k *ticker) Write(p []byte) (int, error) {
	if k.head.Len() < 64<<10 {
		k.head.Write(p)
	}
	k.tail = append(k.tail, p...)
	if len(k.tail) > 8<<10 {
		k.tail = slices.Clone(k.tail[len(k.tail)-4<<10:])
	}
	return len(p), nil
}

// last returns the time of the latest tick. Lines of several processes may arrive out of order.
func (k *ticker) last() (at time.Time) {
	for line := range strings.Lines(string(k.tail)) {
		var ms int64
		if _, err := fmt.Sscanf(line, "tick %d\n", &ms); err == nil && time.UnixMilli(ms).After(at) {
			at = time.UnixMilli(ms)
		}
	}
	return at
}
