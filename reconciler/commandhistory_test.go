package reconciler_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ranFile is the file in which each command records its id when it starts.
const ranFile = "/workspace/ran"

// numbered is a command that records its id, writes numbered lines and exits with a code.
type numbered struct {
	lease, id   string
	lines, code int
	pause       string // between two lines, "" for none
	named       bool   // its request has the same id, so it may be repeated
	detached    bool

	// acknowledged: its caller got the result, with its exit code. begun: its caller learned that it runs. repeated: its
	// caller retried.
	acknowledged, begun, repeated bool
	// refused is the error at which its caller gave up, nil if it did not.
	refused error
}

func (c *numbered) request() sandbox.ExecRequest {
	script := fmt.Sprintf(`echo %s >> %s; `, c.id, ranFile)
	if c.pause == "" {
		script += fmt.Sprintf(`seq %d; `, c.lines)
	} else {
		script += fmt.Sprintf(`i=0; while [ $i -lt %d ]; do i=$((i+1)); echo $i; sleep %s; done; `, c.lines, c.pause)
	}
	req := sandbox.ExecRequest{Command: []string{"sh", "-c", script + fmt.Sprintf("echo %s >&2; exit %d", c.id, c.code)}}
	if c.named {
		req.ID = c.id
	}
	return req
}

func (c *numbered) stdout() string {
	var all strings.Builder
	for i := range c.lines {
		fmt.Fprintln(&all, i+1)
	}
	return all.String()
}

// check compares the output that a caller received with the output of the command.
func (c *numbered) check(t *testing.T, code int, stdout, stderr string) {
	t.Helper()
	if code != c.code || stdout != c.stdout() || stderr != c.id+"\n" {
		t.Errorf("%s of %d lines, repeated %t: exit code %d, want %d; %d bytes of output, want %d, the first that differs "+
			"is byte %d; stderr %q",
			c.id, c.lines, c.repeated, code, c.code, len(stdout), len(c.stdout()), differ(stdout, c.stdout()), stderr)
	}
}

// differ returns the position of the first byte in which two texts differ.
func differ(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// clients run commands in sandboxes while other code kills processes. They record the results.
type clients struct {
	*testing.T
	service atomic.Pointer[service.Service]
	// last limits the attempts of a caller that gets errors.
	last context.Context

	mu       sync.Mutex // guards commands
	commands []*numbered
}

func (c *clients) api() service.Service { return *c.service.Load() }

// again reports whether a caller may retry after an error, and waits briefly.
func (c *clients) again(err error) bool {
	if c.last.Err() != nil || !sandbox.IsRetryable(err) && sandbox.CodeOf(err) != sandbox.UnknownOutcome {
		return false
	}
	time.Sleep(50 * time.Millisecond) //nolint:forbidigo // the pace of retries
	return true
}

// run runs commands in a sandbox one after the other until ctx ends.
func (c *clients) run(ctx context.Context, lease, name string, of func(n int) numbered) {
	for n := 0; ctx.Err() == nil; n++ {
		command := of(n)
		command.lease, command.id = lease, fmt.Sprintf("%s-%d", name, n)
		switch {
		case command.detached:
			c.follow(&command)
		case command.named:
			c.insist(&command)
		default:
			c.try(&command)
		}
		c.mu.Lock()
		c.commands = append(c.commands, &command)
		c.mu.Unlock()
	}
}

// short returns a command that ends quickly, sometimes with much output.
func short(named bool) func(int) numbered {
	return func(n int) numbered {
		lines := 20 + rand.N(200)
		if n%8 == 7 {
			lines = 40_000
		}
		return numbered{lines: lines, code: n % 5, named: named}
	}
}

// long returns a command that writes for seconds, and continues without its caller.
func long(n int) numbered {
	return numbered{lines: 30 + rand.N(60), pause: "0.05", code: n % 5, named: true, detached: true}
}

// try sends a request once.
func (c *clients) try(command *numbered) {
	res, err := c.api().Exec(c.last, sandbox.LeaseRef{ID: command.lease}, command.request())
	if err != nil {
		command.refused = err
		c.again(err)
		return
	}
	command.acknowledged = true
	command.check(c.T, res.ExitCode, string(res.Stdout), string(res.Stderr))
}

// insist retries with the same id until there is a result.
func (c *clients) insist(command *numbered) {
	for {
		res, err := c.api().Exec(c.last, sandbox.LeaseRef{ID: command.lease}, command.request())
		if err == nil {
			command.acknowledged = true
			command.check(c.T, res.ExitCode, string(res.Stdout), string(res.Stderr))
			return
		}
		if !c.again(err) {
			command.refused = err
			return
		}
		command.repeated = true
	}
}

// follow starts a detached command, and reads its output while it runs.
func (c *clients) follow(command *numbered) {
	ref := sandbox.ExecRef{LeaseID: command.lease, ID: command.id}
	for {
		x, err := c.api().StartExec(c.last, sandbox.LeaseRef{ID: command.lease}, command.request())
		if err == nil {
			command.begun = x.State != sandbox.ExecFailed
			break
		}
		if !c.again(err) {
			command.refused = err
			return
		}
		command.repeated = true
	}
	stdout := c.read(ref, sandbox.Stdout)
	stderr := c.read(ref, sandbox.Stderr)
	x, err := c.api().GetExec(c.last, ref)
	for err != nil && c.again(err) {
		x, err = c.api().GetExec(c.last, ref)
	}
	if err != nil || x.State != sandbox.ExecFinished {
		command.refused = fmt.Errorf("it is %s: %s, %w", x.State, x.Error, err)
		return
	}
	command.acknowledged = true
	command.check(c.T, *x.ExitCode, stdout, stderr)
}

// read reads a stream of a command to its end. After an error it continues at its position.
func (c *clients) read(ref sandbox.ExecRef, stream sandbox.ExecStream) string {
	var all strings.Builder
	for {
		r, err := c.api().ReadExec(c.last,
			sandbox.OutputRequest{ExecRef: ref, Stream: stream, Offset: int64(all.Len()), Follow: true})
		if err == nil {
			_, err = io.Copy(&all, r)
			_ = r.Close() // the output so far is kept
		}
		if err == nil || !c.again(err) && c.last.Err() != nil {
			return all.String()
		}
	}
}

// ran counts how often each command has started, by the records in the sandboxes.
func (c *clients) ran(leases []sandbox.Lease) map[string]int {
	c.Helper()
	count := make(map[string]int)
	for _, l := range leases {
		res, err := c.api().Exec(c.last, sandbox.LeaseRef{ID: l.ID}, sandbox.ExecRequest{Command: []string{"cat", ranFile}})
		if err != nil || res.ExitCode != 0 {
			c.Fatalf("read which commands ran: exit code %d, %v", res.ExitCode, err)
		}
		for id := range strings.Lines(string(res.Stdout)) {
			count[strings.TrimSpace(id)]++
		}
	}
	return count
}

// judge compares what callers learned with the commands that ran.
func (c *clients) judge(ran map[string]int) {
	c.Helper()
	var acknowledged, repeated, refused int
	for _, command := range c.commands {
		n := ran[command.id]
		delete(ran, command.id)
		switch {
		case command.acknowledged && n != 1:
			c.Errorf("%s was acknowledged, and ran %d times", command.id, n)
		case command.begun && !command.acknowledged:
			c.Errorf("%s was reported as running, and ran %d times: %v", command.id, n, command.refused)
		case n > 1:
			c.Errorf("%s ran %d times, and its caller got %v", command.id, n, command.refused)
		case !command.acknowledged && (command.named || command.detached):
			c.Logf("%s has no result, and ran %d times: %v", command.id, n, command.refused)
		}
		if command.acknowledged {
			acknowledged++
		} else {
			refused++
		}
		if command.repeated {
			repeated++
		}
	}
	for id, n := range ran {
		c.Errorf("%s ran %d times, and no client knows it", id, n)
	}
	c.Logf("%d commands: %d have a result, %d have none; %d were asked for again",
		len(c.commands), acknowledged, refused, repeated)
}
