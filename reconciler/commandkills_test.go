package reconciler_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// killed is the number of kills, and killedLong the number in the long mode.
	killed, killedLong = 20, 220
	// reachedIn is the time within which each sandbox answers again after a kill of its relay, its broker or its
	// connection.
	reachedIn = 5 * time.Second
	// slack is the same limit in container starts, for a machine on which they are slower.
	slack = 5
	// enough is the minimum number of times for a meaningful median.
	enough = 3
)

// TestCommandsOutliveWhatIsKilledUnderThem kills the reconciler, the relay, brokers and connections at random while
// clients run commands. Each command whose result a client got ran once, with all of its output in order. No other
// command ran twice.
func TestCommandsOutliveWhatIsKilledUnderThem(t *testing.T) {
	t.Parallel()
	t.Run("LocalEngine", func(t *testing.T) {
		t.Parallel()
		newKilling(t, nil).play()
	})
	t.Run("RemoteEngine", func(t *testing.T) {
		t.Parallel()
		if os.Getenv("SANDBOX_TEST_LONG") == "" {
			t.Skip("kills the same under a relay: set SANDBOX_TEST_LONG=1, or run make test-long")
		}
		newKilling(t, dockertest.NewCuttableProxy(t)).play()
	})
}

// killing is a world in which the test kills everything that carries commands.
type killing struct {
	*world
	proxy   *dockertest.CuttableProxy // the connection to the engine, nil for its own socket
	clients *clients
	leases  []sandbox.Lease
	// took has the times from kills of each kind until every sandbox answered.
	took map[string][]time.Duration
}

func newKilling(t *testing.T, proxy *dockertest.CuttableProxy) *killing {
	t.Helper()
	host := ""
	if proxy != nil {
		host = proxy.Host()
	}
	k := &killing{world: newWorld(t, host), proxy: proxy, took: make(map[string][]time.Duration)}
	k.environment("kills")
	for i := range 3 {
		k.leases = append(k.leases, k.acquire(agent(i), "kills"))
	}
	k.clients = &clients{T: t}
	service := k.service // the next start replaces the field
	k.clients.service.Store(&service)
	return k
}

// play runs clients during kills, and then checks the results of their commands.
func (k *killing) play() {
	rounds := killed
	if os.Getenv("SANDBOX_TEST_LONG") != "" {
		rounds = killedLong
	}
	last, giveUp := context.WithCancel(k.Context())
	defer giveUp()
	k.clients.last = last
	working, stop := context.WithCancel(k.Context())
	var clients sync.WaitGroup
	for i, l := range k.leases {
		for name, of := range map[string]func(int) numbered{"named": short(true), "once": short(false), "long": long} {
			clients.Go(func() { k.clients.run(working, l.ID, fmt.Sprintf("%s%d", name, i), of) })
		}
	}
	start := k.startOfARelay()
	k.killAll(rounds)
	stop()
	patience := time.AfterFunc(time.Minute, giveUp)
	clients.Wait()
	patience.Stop()
	for kind, took := range k.took {
		slices.Sort(took)
		median, limit := took[len(took)/2], max(reachedIn, slack*start)
		k.Logf("after a kill of the %s every sandbox answered within %s, in the median %s; the engine starts a relay in %s",
			kind, took[len(took)-1], median, start)
		if len(took) >= enough && median > limit {
			k.Errorf("after a kill of the %s every sandbox answers within %s, want %s", kind, median, limit)
		}
	}
	k.clients.judge(k.clients.ran(k.leases))
	if n := len(k.clients.commands); n < rounds {
		k.Errorf("%d kills met %d commands: too few for a result", rounds, n)
	}
}

// killAll kills everything in turns, in a new random order each time.
func (k *killing) killAll(rounds int) {
	kills := map[string]func(){
		"reconciler":    k.killReconciler,
		"relay":         k.killRelay,
		"relay process": func() { k.end(k.relay(), "relay", "serve") },
		"broker":        func() { k.end(k.sandbox(), "guest", "broker") },
	}
	if k.proxy != nil {
		kills["connection"] = k.proxy.Cut
		kills["carrier"] = func() { k.end(k.relay(), "relay", "connect") }
	}
	var order []string
	for range rounds {
		if len(order) == 0 {
			for kind := range kills {
				order = append(order, kind)
			}
			slices.Sort(order)
			rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		kind := order[0]
		order = order[1:]
		time.Sleep(rand.N(time.Second)) //nolint:forbidigo // the pace of the load
		began := time.Now()
		kills[kind]()
		if kind != "reconciler" && rand.N(3) > 0 { // otherwise the next kill happens before the recovery
			k.reached(kind, began)
		}
	}
}

// reached waits until every sandbox answers.
func (k *killing) reached(kind string, since time.Time) {
	k.Helper()
	var all sync.WaitGroup
	for _, l := range k.leases {
		all.Go(func() {
			ctx, cancel := context.WithDeadline(k.Context(), since.Add(time.Minute))
			defer cancel()
			for {
				res, err := k.service.Exec(ctx, sandbox.LeaseRef{ID: l.ID}, sandbox.ExecRequest{Command: []string{"true"}})
				switch {
				case err == nil && res.ExitCode == 0:
					return
				case ctx.Err() != nil:
					k.Errorf("after a kill of the %s %s does not answer: %v", kind, l.ID, err)
					return
				}
			}
		})
	}
	all.Wait()
	k.took[kind] = append(k.took[kind], time.Since(since))
}

// startOfARelay returns how long the engine takes to start a relay under the load of the clients.
func (k *killing) startOfARelay() time.Duration {
	k.Helper()
	took := make([]time.Duration, 3)
	for i := range took {
		k.killRelay()
		began := time.Now()
		k.docker("start", k.relay())
		took[i] = time.Since(began)
	}
	return slices.Max(took)
}

func (k *killing) killReconciler() {
	k.kill()
	k.start()
	service := k.service // the next start replaces the field
	k.clients.service.Store(&service)
}

// killRelay kills the relay through the engine. Its next use starts it again. A relay that is not back yet needs no
// kill.
func (k *killing) killRelay() {
	_ = exec.CommandContext(k.Context(), "docker", "kill", "--signal", "KILL", k.relay()).Run()
}

// relay returns the name of the relay's container.
func (k *killing) relay() string { return "sandbox-" + k.ledger() + "-relay" }

// sandbox returns the name of the container of a random sandbox.
func (k *killing) sandbox() string {
	return "sandbox-" + k.ledger() + "-" + k.leases[rand.N(len(k.leases))].SandboxID
}

func (k *killing) ledger() string {
	k.Helper()
	_, id, _ := strings.Cut(k.labelled(), "ledger=")
	return id
}

// end kills the processes in a container with a name and a first argument.
func (k *killing) end(container, name, argument string) {
	k.Helper()
	id, err := exec.CommandContext(k.Context(), "docker", "inspect", "--format", "{{.Id}}", container).Output()
	if err == nil { // otherwise it is being replaced
		dockertest.KillProcesses(dockertest.Processes(k, strings.TrimSpace(string(id)), name, argument))
	}
}
