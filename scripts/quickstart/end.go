package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/scripts/harness"
)

// end is step 5: conditions end the leases of one agent and of a whole game, and no others.
func (q *quickstart) end(ctx context.Context) (outcome, error) {
	death, err := q.send(ctx, rpg, fallen, "--type", "agent.death", "--reason", "slain by the orc")
	if err != nil {
		return outcome{}, err
	}
	finish, err := q.send(ctx, catan, "", "--type", "game.finished", "--reason", "ada wins with 10 points")
	if err != nil {
		return outcome{}, err
	}
	turns, err := q.turns()
	if err != nil {
		return outcome{}, err
	}
	i := slices.IndexFunc(turns, func(t turn) bool { return t.Agent == survivor })
	if i < 0 {
		return outcome{}, fmt.Errorf("turns.json has no turn for %s", survivor)
	}
	told, err := q.take(ctx, turns[i])
	if err != nil {
		return outcome{}, fmt.Errorf("%s should still play: %w", survivor, err)
	}
	return outcome{
		line:    "agent.death and game.finished ended 5 leases; their containers are gone, the other hero plays on",
		details: []string{death, finish, told},
	}, nil
}

// send posts a signed condition as a game server does. It waits until the engine has no container of the leases that
// the condition ends: all of the environment, or only the agent's.
func (q *quickstart) send(ctx context.Context, environment, agent string, args ...string) (string, error) {
	leases, err := q.reconciler.Service.ListLeases(ctx,
		sandbox.LeaseFilter{EnvironmentID: environment, AgentDID: agent, Status: sandbox.LeaseActive})
	if err != nil {
		return "", err
	}
	args = append([]string{
		"send", "--url", q.reconciler.URL, "--webhook-secret-file", q.reconciler.SecretFile, "--environment", environment,
	}, args...)
	if agent != "" {
		args = append(args, "--agent", agent)
	}
	if _, err := q.reconciler.Run(ctx, args...); err != nil {
		return "", err
	}
	after, err := harness.Gone(ctx, q.reconciler.Ledger, func(c harness.Container) bool {
		return c.EnvironmentID == environment && (agent == "" || c.AgentDID == agent)
	})
	if err != nil {
		return "", err
	}
	for _, l := range leases {
		if _, err := q.leaseUntil(ctx, l.ID,
			func(l sandbox.Lease) bool { return l.Status == sandbox.LeaseDestroyed }); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%-14s in %s: accepted; containers of ended leases gone after %.2f s: %d",
		args[slices.Index(args, "--type")+1], environment, after.Seconds(), len(leases)), nil
}

// leaseUntil waits until a lease is as expected.
func (q *quickstart) leaseUntil(ctx context.Context, id string,
	expected func(sandbox.Lease) bool) (time.Duration, error) {
	var last sandbox.Lease
	after, err := harness.Until(ctx, 30*time.Second, "lease "+id+" changes",
		func(ctx context.Context) (ok bool, err error) {
			last, err = q.reconciler.Service.GetLease(ctx, id)
			return expected(last), err
		})
	if err != nil {
		err = fmt.Errorf("%w; it is %s, ended by %q", err, last.Status, last.EndedBy)
	}
	return after, err
}

// hurt is step 6: it removes a container out of band, and the reconciler detects that.
func (q *quickstart) hurt(ctx context.Context) (outcome, error) {
	lease, err := q.reconciler.Service.GetLease(ctx, sandbox.LeaseID(survivor, rpg))
	if err != nil {
		return outcome{}, err
	}
	name, err := q.containerOf(ctx, lease)
	if err != nil {
		return outcome{}, err
	}
	if q.backend == sandbox.Cloudflare {
		return q.crash(ctx, lease, name)
	}
	if _, err := harness.Docker(ctx, "rm", "--force", name); err != nil {
		return outcome{}, err
	}
	after, err := q.leaseUntil(ctx, lease.ID, func(l sandbox.Lease) bool { return l.EndedBy == sandbox.EndedByVanished })
	if err != nil {
		return outcome{}, err
	}
	return outcome{line: fmt.Sprintf("docker rm -f removed the container of %s; the reconciler noticed after %.2f s",
		survivor, after.Seconds())}, nil
}

func (q *quickstart) containerOf(ctx context.Context, lease sandbox.Lease) (string, error) {
	all, err := harness.Sandboxes(ctx, q.reconciler.Ledger)
	if err != nil {
		return "", err
	}
	all = slices.DeleteFunc(all, func(c harness.Container) bool {
		return c.EnvironmentID != lease.EnvironmentID || c.AgentDID != lease.AgentDID
	})
	if len(all) != 1 {
		return "", fmt.Errorf("lease %s should have one container, the engine has %+v", lease.ID, all)
	}
	return all[0].Name, nil
}

// crash kills the container of a Durable Object. The object still knows its sandbox and can restart it.
func (q *quickstart) crash(ctx context.Context, lease sandbox.Lease, name string) (outcome, error) {
	if _, err := harness.Docker(ctx, "kill", name); err != nil {
		return outcome{}, err
	}
	after, err := harness.Until(ctx, 30*time.Second, "the reconciler notices", func(ctx context.Context) (bool, error) {
		findings, err := q.reconciler.Service.ListDrift(ctx,
			sandbox.DriftFilter{LeaseID: lease.ID, Kind: sandbox.DriftStopped})
		return len(findings) > 0, err
	})
	if err != nil {
		return outcome{}, err
	}
	if _, err := q.leaseUntil(ctx, lease.ID,
		func(l sandbox.Lease) bool { return l.Phase == sandbox.PhaseAwake }); err != nil {
		return outcome{}, err
	}
	return outcome{
		line: fmt.Sprintf("docker kill ended the container of %s; the reconciler noticed after %.2f s, and started it again",
			survivor, after.Seconds()),
	}, nil
}
