package main

import (
	"context"
	"fmt"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// tableParallelism is how many docker run commands run at the same time, to find the best time of the plain way.
var tableParallelism = []int{4, 8, 16}

// tables measures the time until all leases of one batch are ready. It compares that with docker run of as many
// containers with the same settings. The ways alternate, and the best times are compared.
func tables(ctx context.Context, s *stage, o options) ([]result, error) {
	var plain, ours time.Duration
	commands := 0
	for round, atOnce := range tableParallelism {
		took, err := plainRuns(ctx, o.leases, atOnce)
		if err != nil {
			return nil, err
		}
		if plain == 0 || took < plain {
			plain, commands = took, atOnce
		}
		if took, err = leasedTable(ctx, s, fmt.Sprintf("bench-table-%d", round), o.leases); err != nil {
			return nil, err
		}
		ours = shorter(ours, took)
	}
	return []result{
		atMost(fmt.Sprintf("%d leases in one batch / docker run -d", o.leases), ours.Seconds()/plain.Seconds(), "ratio", 1.0,
			fmt.Sprintf("%d ms against %d ms with %d commands at once", ours.Milliseconds(), plain.Milliseconds(), commands)),
	}, nil
}

// leasedTable acquires n leases in one batch over HTTP, in their own environment, and removes the environment.
func leasedTable(ctx context.Context, s *stage, table string, n int) (time.Duration, error) {
	if err := s.environment(ctx,
		sandbox.PutEnvironment{ID: table, EnvironmentSpec: sandbox.EnvironmentSpec{Type: sandbox.TypeCatan}}); err != nil {
		return 0, err
	}
	batch := sandbox.AcquireBatch{EnvironmentID: table, AllOrNone: true}
	for i := range n {
		batch.Items = append(batch.Items, sandbox.BatchItem{AgentDID: fmt.Sprintf("did:plc:seat%d", i)})
	}
	took, err := timed(func() error {
		_, err := s.reconciler.Service.AcquireBatch(ctx, batch)
		return err
	})
	if err != nil {
		return 0, err
	}
	return took, s.reconciler.Service.DeleteEnvironment(ctx, sandbox.DeleteEnvironment{ID: table, Force: true})
}
