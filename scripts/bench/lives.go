package main

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/scripts/harness"
)

// lives measures how long a sandbox takes to start and to end. Each time, the docker command does the same to a
// container with the same settings, so that caches, the disk and the machine's load affect both alike.
func lives(ctx context.Context, s *stage, o options) ([]result, error) {
	destroyed, err := watchDestroyed(ctx)
	if err != nil {
		return nil, err
	}
	defer destroyed.close()
	send, err := newSender(s.reconciler, 1)
	if err != nil {
		return nil, err
	}
	var run, acquire, remove, end []time.Duration
	for round := range o.rounds + 1 {
		p, err := plainLife(ctx, fmt.Sprintf("sandbox-bench-%d", round))
		if err != nil {
			return nil, err
		}
		l, err := leasedLife(ctx, s, send, destroyed, fmt.Sprintf("did:plc:bench%d", round))
		if err != nil {
			return nil, err
		}
		if round == 0 {
			continue // fills caches
		}
		run, remove = append(run, p.begin), append(remove, p.end)
		acquire, end = append(acquire, l.begin), append(end, l.end)
	}
	return []result{
		ratio("cold acquire / docker run -d", median(acquire), median(run), 1.15),
		ratio("condition accepted to container gone / docker rm -f", median(end), median(remove), 1.3),
	}, nil
}

func ratio(name string, ours, plain time.Duration, target float64) result {
	return atMost(name, ours.Seconds()/plain.Seconds(), "ratio of p50", target,
		fmt.Sprintf("%d ms against %d ms", ours.Milliseconds(), plain.Milliseconds()))
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// life is how long the start and the end of one container took.
type life struct{ begin, end time.Duration }

// plain is a container that the docker command creates, with the settings of a sandbox.
type plain struct{ name string }

func (p plain) volumes() []string { return []string{p.name + "-workspace", p.name + "-data"} }

func (p plain) run(ctx context.Context) error {
	r, volumes := sandbox.DefaultResources, p.volumes()
	_, err := harness.Docker(ctx, "run", "--detach", "--interactive", "--name", p.name,
		"--network", "none", "--ipc", "private", "--user", "1000:1000",
		"--read-only", "--tmpfs", "/tmp:rw,noexec,nosuid,nodev,size=512m,mode=1777",
		"--cap-drop", "ALL", "--security-opt", "no-new-privileges",
		"--memory", fmt.Sprintf("%dm", r.MemoryMB), "--memory-swap", fmt.Sprintf("%dm", r.MemoryMB),
		"--cpus", fmt.Sprintf("%g", float64(r.CPUMillis)/1000), "--pids-limit", fmt.Sprint(r.PIDs),
		"--log-driver", "json-file", "--log-opt", "max-size=1m", "--log-opt", "max-file=1",
		"--mount", "type=volume,source="+volumes[0]+",target=/workspace",
		"--mount", "type=volume,source="+volumes[1]+",target=/data",
		image, "/player")
	return err
}

// plainLife starts and removes a container.
func plainLife(ctx context.Context, name string) (l life, err error) {
	p := plain{name}
	if l.begin, err = timed(func() error { return p.run(ctx) }); err != nil {
		return l, err
	}
	if l.end, err = timed(func() error { _, err := harness.Docker(ctx, "rm", "--force", name); return err }); err != nil {
		return l, err
	}
	_, err = harness.Docker(ctx, append([]string{"volume", "rm"}, p.volumes()...)...)
	return l, err
}

// leasedLife acquires a lease and ends it by a condition, over HTTP as a game server does.
func leasedLife(ctx context.Context, s *stage, send *sender, destroyed *destructions,
	agent string) (l life, err error) {
	var got sandbox.Acquired
	l.begin, err = timed(func() (err error) {
		got, err = s.reconciler.Service.Acquire(ctx, sandbox.Acquire{AgentDID: agent, EnvironmentID: environment})
		return err
	})
	if err != nil {
		return l, err
	}
	receipt, err := send.post(ctx, "end-"+got.Lease.SandboxID, death(agent, time.Now()))
	if err != nil {
		return l, err
	}
	accepted := time.Now()
	if receipt.Matched != 1 {
		return l, fmt.Errorf("the death of %s ended %d leases, not one", agent, receipt.Matched)
	}
	at, err := destroyed.wait(ctx, got.Lease.SandboxID)
	if err != nil {
		return l, err
	}
	l.end = max(at.Sub(accepted), 0)
	_, err = harness.Until(ctx, time.Minute, "the lease is destroyed", func(ctx context.Context) (bool, error) {
		lease, err := s.reconciler.Service.GetLease(ctx, got.Lease.ID)
		return lease.Status == sandbox.LeaseDestroyed, err
	})
	return l, err
}

func timed(do func() error) (time.Duration, error) {
	begin := time.Now()
	err := do()
	return time.Since(begin), err
}

// destructions receives the times at which the engine removed containers.
type destructions struct {
	events chan destruction
	close  func()
}

type destruction struct {
	name string
	at   time.Time
}

// watchDestroyed follows the engine's events until close is called.
func watchDestroyed(ctx context.Context) (*destructions, error) {
	ctx, cancel := context.WithCancel(ctx)
	events := harness.Command(ctx, "docker", "events", "--filter", "type=container", "--filter", "event=destroy",
		"--format", "{{.Actor.Attributes.name}}")
	stdout, err := events.StdoutPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	if err := events.Start(); err != nil {
		cancel()
		return nil, err
	}
	d := &destructions{events: make(chan destruction, 1024)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(d.events)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			d.events <- destruction{lines.Text(), time.Now()}
		}
	}()
	d.close = func() {
		cancel()
		<-done
		_ = events.Wait() // it reports the signal as an error
	}
	return d, nil
}

// wait returns when the last container of the sandboxes was removed.
func (d *destructions) wait(ctx context.Context, sandboxIDs ...string) (last time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	left := make(map[string]bool)
	for _, id := range sandboxIDs {
		left[id] = true
	}
	for len(left) > 0 {
		select {
		case e, open := <-d.events:
			if !open {
				return last, fmt.Errorf("docker events ended")
			}
			if id := e.name[strings.LastIndex(e.name, "-")+1:]; left[id] { // the sandbox, not its carrier
				delete(left, id)
				last = e.at
			}
		case <-ctx.Done():
			return last, fmt.Errorf("the containers of %d sandboxes are not gone: %w", len(left), ctx.Err())
		}
	}
	return last, nil
}
