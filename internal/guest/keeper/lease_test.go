//go:build linux

package keeper_test

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// leaseFor returns a lease that ends after a time.
func leaseFor(id string, left time.Duration) *wire.Lease {
	at := time.Now().Add(left)
	return &wire.Lease{
		ID:       id,
		Env:      map[string]string{"LEASED": id},
		Config:   fmt.Sprintf("{%q:1}", id),
		Deadline: at,
		Ends:     wire.Ends{At: at, Left: left},
	}
}

// assign assigns a sandbox, and returns the problem.
func (b *box) assign(t *testing.T, l *wire.Lease) string {
	t.Helper()
	res, err := b.call(channel.Request{Op: channel.OpAssign, ID: sandbox.RandomIDs(12), Lease: l}, channel.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	return res.Problem
}

// wantFirst checks that a command sees the lease named first.
func (b *box) wantFirst(t *testing.T) {
	t.Helper()
	out, _, _ := b.run(t, "echo $LEASED; cat config.json; stat -c %u config.json")
	if want := fmt.Sprintf("first\n{\"first\":1}%d\n", user); out != want {
		t.Errorf("a command sees %q, want %q", out, want)
	}
}

func TestASandboxOfAPoolTakesOneLease(t *testing.T) {
	b := start(t, options{keep: []string{"-pooled"}, run: []string{"-v", guest.LeaseDir}})
	if out, _, _ := b.run(t, "echo \"$LEASED\"; ls"); out != "\n" {
		t.Errorf("before its lease, a command sees %q", out)
	}
	first := leaseFor("first", time.Minute)
	for range 2 {
		if problem := b.assign(t, first); problem != "" {
			t.Fatalf("assign: %s", problem)
		}
	}
	b.wantFirst(t)
	if problem := b.assign(t, leaseFor("second", time.Minute)); problem != wire.ProblemConflict {
		t.Errorf("another lease: %q, want a conflict", problem)
	}
	b.wantFirst(t)
	if _, errOut, res := b.run(t, "ls "+guest.LeaseDir); res.ExitCode == 0 || !strings.Contains(errOut, "denied") {
		t.Errorf("the sandbox can read the directory of its lease: %q, %+v", errOut, res)
	}
	b.docker(t, "restart", "-t", "1", b.name)
	b.wantFirst(t)
	if problem := b.assign(t, leaseFor("second", time.Minute)); problem != wire.ProblemConflict {
		t.Errorf("another lease after a restart: %q, want a conflict", problem)
	}
}

// TestABrokerThatIsStartedAgainKnowsTheLease checks that the variables of a lease survive the broker that received it.
func TestABrokerThatIsStartedAgainKnowsTheLease(t *testing.T) {
	b := start(t, options{keep: []string{"-pooled"}, run: []string{"-v", guest.LeaseDir}})
	if problem := b.assign(t, leaseFor("first", time.Minute)); problem != "" {
		t.Fatalf("assign: %s", problem)
	}
	if out, err := exec.Command("kill", "-KILL", b.broker(t)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for { // a pending call is lost with the session
		_, err := b.call(channel.Request{Op: channel.OpUsage}, channel.Streams{})
		if err == nil {
			break
		}
		if !errors.Is(err, channel.ErrLost) {
			t.Fatal(err)
		}
	}
	b.wantFirst(t)
}

func TestADeadlineOfALeaseIsInForceOnceItIsAssigned(t *testing.T) {
	b := start(t, options{keep: []string{"-pooled"}, run: []string{"-v", guest.LeaseDir}})
	const left = 3 * time.Second
	began := time.Now()
	if problem := b.assign(t, leaseFor("first", left)); problem != "" {
		t.Fatalf("assign: %s", problem)
	}
	if code := b.docker(t, "wait", b.name); code != "124" || time.Since(began) < left {
		t.Errorf("it ended after %s with exit code %s", time.Since(began), code)
	}
}

func TestASandboxThatWasNotMadeForAPoolTakesNoLease(t *testing.T) {
	b := start(t, options{})
	if problem := b.assign(t, leaseFor("first", time.Minute)); problem != wire.ProblemConflict {
		t.Errorf("assign: %q, want a conflict", problem)
	}
}
