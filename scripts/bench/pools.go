package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/scripts/harness"
)

// pools measures how long it takes to get a paused sandbox from a pool, over HTTP. It compares that with the engine's
// own request to wake a container with the same settings, with a new sandbox, and with a running sandbox from a pool.
func pools(ctx context.Context, s *stage, o options) (_ []result, err error) {
	const pool = "bench-pool"
	warmPool := sandbox.EnvironmentSpec{Type: sandbox.TypeRPG, WarmPool: &sandbox.WarmPool{Size: 1}}
	if err := s.environment(ctx, sandbox.PutEnvironment{ID: pool, EnvironmentSpec: warmPool}); err != nil {
		return nil, err
	}
	p, err := newSleeper(ctx, "sandbox-bench-sleeper")
	if p != nil {
		defer func() { err = errors.Join(err, p.remove(context.WithoutCancel(ctx))) }()
	}
	if err != nil {
		return nil, err
	}
	const running = "bench-running"
	runningPool := sandbox.EnvironmentSpec{
		Type:     sandbox.TypeRPG,
		WarmPool: &sandbox.WarmPool{Size: 1, Mode: sandbox.PoolRunning},
	}
	if err := s.environment(ctx, sandbox.PutEnvironment{ID: running, EnvironmentSpec: runningPool}); err != nil {
		return nil, err
	}
	nap, err := s.nap(ctx)
	if err != nil {
		return nil, err
	}
	var unpause, warm, cold, woken []time.Duration
	var claims claimed
	for round := range o.rounds + 1 {
		agent := fmt.Sprintf("did:plc:pool%d", round)
		if err := s.settled(ctx, pool); err != nil {
			return nil, err
		}
		u, err := p.wake(ctx)
		if err != nil {
			return nil, err
		}
		n, err := nap.wake(ctx)
		if err != nil {
			return nil, err
		}
		w, err := s.acquire(ctx, agent, pool)
		if err != nil {
			return nil, err
		}
		claim, err := s.claim(ctx, agent, pool, running)
		if err != nil {
			return nil, err
		}
		if err := s.settled(ctx, pool); err != nil {
			return nil, err
		}
		c, err := s.acquire(ctx, agent, environment)
		if err != nil {
			return nil, err
		}
		if round == 0 {
			continue // fills caches
		}
		unpause, warm, cold, woken = append(unpause, u), append(warm, w), append(cold, c), append(woken, n)
		claims.add(claim)
	}
	own, ours := median(unpause), median(warm)
	return []result{
			atMost("warm acquire beyond the engine's own unpause", milliseconds(ours-own), "ms of p50", 6,
				fmt.Sprintf("%.1f ms against %.1f ms", milliseconds(ours), milliseconds(own))),
			atLeast("cold acquire / warm acquire", median(cold).Seconds()/ours.Seconds(), "ratio of p50", 10,
				fmt.Sprintf("%.0f ms against %.1f ms", milliseconds(median(cold)), milliseconds(ours))),
			atMost("warm acquire, running pool", milliseconds(median(claims.acquire[1])), "ms of p50", 6,
				fmt.Sprintf("%.1f ms paused", milliseconds(median(claims.acquire[0])))),
			atMost("warm acquire to first output, running pool", milliseconds(median(claims.output[1])), "ms of p50", 10,
				fmt.Sprintf("%.1f ms paused", milliseconds(median(claims.output[0])))),
			atMost("warm acquire to first output, running pool, slowest of 100", milliseconds(slowest(claims.output[1])),
				"ms of p99", 25, fmt.Sprintf("of %d", len(claims.output[1]))),
			atMost("wake to first output beyond the engine's own unpause", milliseconds(median(woken)-own), "ms of p50", 6,
				fmt.Sprintf("%.1f ms against %.1f ms", milliseconds(median(woken)), milliseconds(own))),
		}, errors.Join(
			nap.end(ctx),
			s.reconciler.Service.DeleteEnvironment(ctx, sandbox.DeleteEnvironment{ID: pool, Force: true}),
			s.reconciler.Service.DeleteEnvironment(ctx, sandbox.DeleteEnvironment{ID: running, Force: true}))
}

// claimed has the times to acquire a sandbox, and until the output of its first command: from a paused pool and from a
// running one.
type claimed struct{ acquire, output [2][]time.Duration }

func (c *claimed) add(took [2][2]time.Duration) {
	for i, t := range took {
		c.acquire[i], c.output[i] = append(c.acquire[i], t[0]), append(c.output[i], t[1])
	}
}

// slowest returns the 99th percentile.
func slowest(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)*99/100]
}

// nap is a lease with a paused sandbox.
type nap struct {
	s     *stage
	lease sandbox.LeaseRef
}

func (s *stage) nap(ctx context.Context) (*nap, error) {
	got, err := s.reconciler.Service.Acquire(ctx, sandbox.Acquire{AgentDID: "did:plc:nap", EnvironmentID: environment})
	if err != nil {
		return nil, err
	}
	n := &nap{s, sandbox.LeaseRef{ID: got.Lease.ID}}
	_, err = s.reconciler.Service.Sleep(ctx, n.lease)
	return n, err
}

// wake runs a command, which wakes the sandbox, and puts it back to sleep.
func (n *nap) wake(ctx context.Context) (time.Duration, error) {
	took, err := timed(func() error {
		_, err := n.s.reconciler.Service.Exec(ctx, n.lease, sandbox.ExecRequest{Command: []string{"/player"}})
		return err
	})
	if err == nil {
		_, err = n.s.reconciler.Service.Sleep(ctx, n.lease)
	}
	return took, err
}

func (n *nap) end(ctx context.Context) error {
	_, err := n.s.reconciler.Service.Release(ctx, n.lease)
	return err
}

// claim acquires a sandbox from each of two pools, one after the other, and runs a command in it.
func (s *stage) claim(ctx context.Context, agent string, pools ...string) (took [2][2]time.Duration, err error) {
	for i, pool := range pools {
		if err := s.settled(ctx, pool); err != nil {
			return took, err
		}
		began := time.Now()
		got, err := s.reconciler.Service.Acquire(ctx, sandbox.Acquire{AgentDID: agent + "-first", EnvironmentID: pool})
		if err != nil {
			return took, err
		}
		took[i][0] = time.Since(began)
		_, err = s.reconciler.Service.Exec(ctx, sandbox.LeaseRef{ID: got.Lease.ID},
			sandbox.ExecRequest{Command: []string{"/player"}})
		took[i][1] = time.Since(began)
		if err != nil {
			return took, err
		}
		if _, err := s.reconciler.Service.Release(ctx, sandbox.LeaseRef{ID: got.Lease.ID}); err != nil {
			return took, err
		}
	}
	return took, nil
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }

// settled returns once a sandbox waits in the pool of an environment and no release is in progress.
func (s *stage) settled(ctx context.Context, pool string) error {
	_, err := harness.Until(ctx, time.Minute, "a sandbox waits", func(ctx context.Context) (bool, error) {
		e, err := s.reconciler.Service.GetEnvironment(ctx, pool)
		if err != nil || e.Pool.Ready == 0 {
			return false, err
		}
		leases, err := s.reconciler.Service.ListLeases(ctx, sandbox.LeaseFilter{Status: sandbox.LeaseExpired})
		return len(leases) == 0, err
	})
	return err
}

// acquire measures how long an acquire takes, and releases the lease.
func (s *stage) acquire(ctx context.Context, agent, environment string) (time.Duration, error) {
	var got sandbox.Acquired
	took, err := timed(func() (err error) {
		got, err = s.reconciler.Service.Acquire(ctx, sandbox.Acquire{AgentDID: agent, EnvironmentID: environment})
		return err
	})
	if err == nil {
		_, err = s.reconciler.Service.Release(ctx, sandbox.LeaseRef{ID: got.Lease.ID})
	}
	return took, err
}

// sleeper is a container that the engine's API pauses and wakes. The docker command would take longer to start than the
// engine takes to wake.
type sleeper struct {
	plain
	api *dockerapi.Client
}

func newSleeper(ctx context.Context, name string) (*sleeper, error) {
	api, err := docker.NewClient(docker.Config{})
	if err != nil {
		return nil, err
	}
	p := &sleeper{plain{name}, api}
	if err := p.run(ctx); err != nil {
		return p, err
	}
	return p, api.ContainerPause(ctx, name)
}

// wake wakes the container and pauses it again, so that it has slept as long as a sandbox in a pool.
func (p *sleeper) wake(ctx context.Context) (time.Duration, error) {
	took, err := timed(func() error { return p.api.ContainerUnpause(ctx, p.name) })
	if err == nil {
		err = p.api.ContainerPause(ctx, p.name)
	}
	return took, err
}

func (p *sleeper) remove(ctx context.Context) error {
	_, err := harness.Docker(ctx, "rm", "--force", p.name)
	if err == nil {
		_, err = harness.Docker(ctx, append([]string{"volume", "rm"}, p.volumes()...)...)
	}
	return errors.Join(err, p.api.Close())
}
