package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/scripts/harness"
)

// parallelism is how many docker commands run at the same time, to find the best time of the plain way.
var parallelism = []int{2, 4, 8}

// begins is how many containers start at the same time; their start is not measured.
const begins = 4

// gameRounds is how often each way runs. The ways alternate, because the machine's speed varies by the minute. The best
// times are compared.
const gameRounds = 3

// games measures the time until all containers of a game are gone after the condition that ends it. It compares that
// with docker commands that remove as many containers with the same settings.
func games(ctx context.Context, s *stage, o options) ([]result, error) {
	var plain, ours time.Duration
	commands := 0
	for round := range gameRounds {
		p := parallelism[round%len(parallelism)]
		took, err := plainGame(ctx, o.players, p)
		if err != nil {
			return nil, err
		}
		if plain == 0 || took < plain {
			plain, commands = took, p
		}
		if took, err = leasedGame(ctx, s, fmt.Sprintf("bench-game-%d", round), o.players); err != nil {
			return nil, err
		}
		if ours == 0 || took < ours {
			ours = took
		}
	}
	return []result{atMost(fmt.Sprintf("condition that ends %d leases / docker rm -f", o.players),
		ours.Seconds()/plain.Seconds(), "ratio", 1.2, fmt.Sprintf("%d ms against %d ms with %d commands at once",
			ours.Milliseconds(), plain.Milliseconds(), commands))}, nil
}

// plainGame starts n containers, and removes them with several docker commands at the same time. Each command removes
// its part.
func plainGame(ctx context.Context, n, commands int) (time.Duration, error) {
	players := make([]plain, n)
	g, starting := errgroup.WithContext(ctx)
	g.SetLimit(begins)
	for i := range players {
		players[i] = plain{fmt.Sprintf("sandbox-bench-%d-%d", commands, i)}
		g.Go(func() error { return players[i].run(starting) })
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	parts, volumes := make([][]string, commands), []string{"volume", "rm"}
	for i, p := range players {
		parts[i%commands] = append(parts[i%commands], p.name)
		volumes = append(volumes, p.volumes()...)
	}
	took, err := timed(func() error {
		g, removing := errgroup.WithContext(ctx)
		for _, names := range parts {
			g.Go(func() error {
				_, err := harness.Docker(removing, append([]string{"rm", "--force"}, names...)...)
				return err
			})
		}
		return g.Wait()
	})
	if err == nil {
		_, err = harness.Docker(ctx, volumes...)
	}
	return took, err
}

// leasedGame acquires n leases in their own environment and ends them by one condition. It returns the time from the
// reply until the last container is gone.
func leasedGame(ctx context.Context, s *stage, game string, n int) (time.Duration, error) {
	if err := s.environment(ctx,
		sandbox.PutEnvironment{ID: game, EnvironmentSpec: sandbox.EnvironmentSpec{Type: sandbox.TypeCatan}}); err != nil {
		return 0, err
	}
	ids, err := s.acquireAll(ctx, game, n)
	if err != nil {
		return 0, err
	}
	destroyed, err := watchDestroyed(ctx)
	if err != nil {
		return 0, err
	}
	defer destroyed.close()
	send, err := newSender(s.reconciler, 1)
	if err != nil {
		return 0, err
	}
	receipt, err := send.post(ctx, game+"-over", sandbox.Condition{Type: "game.finished", Timestamp: time.Now().UTC(),
		Data: sandbox.ConditionData{EnvironmentID: game}})
	if err != nil {
		return 0, err
	}
	accepted := time.Now()
	if receipt.Matched != n {
		return 0, fmt.Errorf("the end of the game ended %d leases of %d", receipt.Matched, n)
	}
	last, err := destroyed.wait(ctx, ids...)
	if err != nil {
		return 0, err
	}
	return last.Sub(accepted), s.reconciler.Service.DeleteEnvironment(ctx,
		sandbox.DeleteEnvironment{ID: game, Force: true})
}
