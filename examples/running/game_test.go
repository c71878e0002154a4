package running_test

import (
	"context"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// game is a game with one player, on a reconciler.
type game struct {
	*testing.T
	client *client.Client
}

const environment = "catan-7"

// playedBy returns a game on the reconciler at a URL.
func playedBy(t *testing.T, url, token string) game {
	t.Helper()
	c, err := client.New(client.Config{URL: url, Token: token})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return game{t, c}
}

// join creates the game's environment, and leases a sandbox to its player.
func (g game) join(access sandbox.HostAccess) sandbox.LeaseRef {
	g.Helper()
	g.makeEnvironment(
		sandbox.EnvironmentSpec{Type: sandbox.TypeCatan, Image: dockertest.Busybox(g.T), HostAccess: access})
	got, err := g.client.Acquire(g.Context(), sandbox.Acquire{EnvironmentID: environment, AgentDID: "did:plc:ann"})
	must(g.T, err)
	return sandbox.LeaseRef{ID: got.Lease.ID, Generation: got.Lease.Generation}
}

// makeEnvironment creates the game's environment until the end of the test.
func (g game) makeEnvironment(spec sandbox.EnvironmentSpec) {
	g.Helper()
	_, err := g.client.PutEnvironment(g.Context(), sandbox.PutEnvironment{ID: environment, EnvironmentSpec: spec})
	must(g.T, err)
	g.Cleanup(func() {
		must(g.T, g.client.DeleteEnvironment(context.WithoutCancel(g.Context()),
			sandbox.DeleteEnvironment{ID: environment, Force: true}))
	})
}

// exec runs a command in the player's sandbox, and returns its output.
func (g game) exec(player sandbox.LeaseRef, command ...string) string {
	g.Helper()
	res, err := g.client.Exec(g.Context(), player, sandbox.ExecRequest{Command: command})
	must(g.T, err)
	if res.ExitCode != 0 {
		g.Errorf("%q exits with %d: %s", command, res.ExitCode, res.Stderr)
	}
	return string(res.Stdout)
}

// finish ends the game, and waits until the player's sandbox is gone.
func (g game) finish(player sandbox.LeaseRef) {
	g.Helper()
	over := sandbox.Condition{
		Type:      "game.finished",
		Timestamp: time.Now(),
		Data:      sandbox.ConditionData{EnvironmentID: environment},
	}
	_, err := g.client.Deliver(g.Context(), sandbox.Delivery{ID: "msg_" + sandbox.RandomIDs(20), Condition: over})
	must(g.T, err)
	eventually(g.T, "the lease is destroyed after the end of the game", func() bool {
		l, err := g.client.GetLease(g.Context(), player.ID)
		must(g.T, err)
		return l.Status == sandbox.LeaseDestroyed
	})
}
