package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/scripts/harness"
)

// restarts kills the reconciler while many sandboxes live. It measures the time from the next start until the
// reconciler has observed each of them again. The restart must not end or create any sandbox.
func restarts(ctx context.Context, s *stage, o options) ([]result, error) {
	const living = "bench-restart"
	if err := s.environment(ctx,
		sandbox.PutEnvironment{ID: living, EnvironmentSpec: sandbox.EnvironmentSpec{Type: sandbox.TypeRPG}}); err != nil {
		return nil, err
	}
	if _, err := s.acquireAll(ctx, living, o.living); err != nil {
		return nil, err
	}
	before, err := s.containers(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.reconciler.Kill(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	_, err = harness.Until(ctx, time.Minute, "every sandbox is seen again", func(ctx context.Context) (bool, error) {
		leases, err := s.reconciler.Service.ListLeases(ctx,
			sandbox.LeaseFilter{EnvironmentID: living, Status: sandbox.LeaseActive})
		if err == nil && len(leases) != o.living {
			err = fmt.Errorf("%d leases of %d are active after a restart", len(leases), o.living)
		}
		return !slices.ContainsFunc(leases, func(l sandbox.Lease) bool { return l.ObservedAt.Before(began) }), err
	})
	took := time.Since(began)
	if err != nil {
		return nil, err
	}
	after, err := s.containers(ctx)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(before, after) {
		return nil, fmt.Errorf("the containers were not left alone: there were %d and are %d", len(before), len(after))
	}
	return []result{atMost(fmt.Sprintf("restart until %d sandboxes are seen again", o.living), took.Seconds(), "s", 5,
			"none ended, none made")},
		s.reconciler.Service.DeleteEnvironment(ctx, sandbox.DeleteEnvironment{ID: living, Force: true})
}

// acquireAll acquires n leases in an environment and returns the ids of their sandboxes. It is not measured.
func (s *stage) acquireAll(ctx context.Context, environment string, n int) ([]string, error) {
	ids := make([]string, n)
	g, acquiring := errgroup.WithContext(ctx)
	g.SetLimit(begins)
	for i := range ids {
		g.Go(func() error {
			got, err := s.reconciler.Service.Acquire(acquiring,
				sandbox.Acquire{AgentDID: fmt.Sprintf("did:plc:player%d", i), EnvironmentID: environment})
			ids[i] = got.Lease.SandboxID
			return err
		})
	}
	return ids, g.Wait()
}

// containers returns the sorted ids of the ledger's running containers.
func (s *stage) containers(ctx context.Context) ([]string, error) {
	ids, err := harness.Docker(ctx, "ps", "--quiet", "--no-trunc",
		"--filter", "label=io.sandbox-lease.ledger="+s.reconciler.Ledger, "--filter", "label=io.sandbox-lease.role=sandbox")
	slices.Sort(ids)
	return ids, err
}
