package docker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func relayName(w *world) string { return "sandbox-" + w.ref.LedgerID + "-relay" }

// channelOf returns the path of a sandbox's channel on the host.
func channelOf(t *testing.T, api *dockerapi.Client, h driver.Handle) string {
	t.Helper()
	c, err := api.ContainerInspect(t.Context(), name(h))
	must(t, err)
	for _, m := range c.Mounts {
		if m.Destination == "/.sandbox-channel" {
			if m.RW {
				t.Error("the sandbox may write to its channel's directory")
			}
			return m.Source
		}
	}
	t.Fatal("the sandbox has no channel")
	return ""
}

// relayFiles lists the sandboxes with a directory of the relay.
func relayFiles(t *testing.T, w *world) []string {
	t.Helper()
	all, err := w.x.Dependents(t.Context(), w.ref.LedgerID)
	must(t, err)
	var found []string
	for _, l := range all {
		if l.Kind == driver.DependentChannel {
			found = append(found, l.SandboxID)
		}
	}
	return found
}

func TestEachSandboxHasAChannelOfItsOwnThatGoesWithIt(t *testing.T) {
	t.Parallel()
	w, api := newWorld(t, dockertest.Busybox(t)), dockertest.Engine(t)
	one, two := w.spawn(t), w.spawn(t)
	for _, h := range []driver.Handle{one, two} {
		if dir := channelOf(t, api, h); path.Base(dir) != h.SandboxID {
			t.Errorf("the channel of %s is %s", h.SandboxID, dir)
		}
		// Sandbox code sees that there is a socket. It can neither list the directory nor create anything in it.
		out := w.exec(t, h, "sh", "-c",
			"cd /.sandbox-channel; stat -c '%a %u %F' channel.sock; ls . || echo unlisted; touch x || echo unwritten")
		for _, want := range []string{"600 65533 socket", "unlisted", "unwritten"} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in %q", want, out)
			}
		}
	}
	must(t, w.x.Kill(t.Context(), one))
	if found := relayFiles(t, w); slices.Contains(found, one.SandboxID) || !slices.Contains(found, two.SandboxID) {
		t.Errorf("the relay has %q", found)
	}
}

func TestARelayThatIsGoneComesBackForTheNextSandbox(t *testing.T) {
	t.Parallel()
	w, api := newWorld(t, dockertest.Busybox(t)), dockertest.Engine(t)
	old := w.spawn(t)
	grace := 0
	for what, harm := range map[string]func() error{
		"removed": func() error {
			return api.ContainerRemove(t.Context(), relayName(w), dockerapi.ContainerRemoveOptions{Force: true})
		},
		"stopped": func() error {
			return api.ContainerStop(t.Context(), relayName(w), dockerapi.StopOptions{Timeout: &grace})
		},
		"killed": func() error { return api.ContainerKill(t.Context(), relayName(w), "KILL") },
		"paused": func() error { return api.ContainerPause(t.Context(), relayName(w)) },
	} {
		must(t, harm())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		spec := w.spec()
		if err := w.x.Spawn(ctx, spec); err != nil {
			t.Errorf("%s: %v", what, err)
		} else if found := relayFiles(t, w); !slices.Contains(found, old.SandboxID) ||
			!slices.Contains(found, spec.SandboxID) {
			t.Errorf("%s: the relay has %q", what, found)
		}
		cancel()
		must(t, w.x.Kill(t.Context(), spec.Handle))
	}
}

// A connection that the relay has lent works without the relay. A command without such a connection restarts the relay.
func TestACommandBringsItsRelayBack(t *testing.T) {
	t.Parallel()
	w, api := newWorld(t, dockertest.Busybox(t)), dockertest.Engine(t)
	h := w.spawn(t)
	grace := 0
	starting := time.Now()
	must(t, api.ContainerRestart(t.Context(), relayName(w), dockerapi.StopOptions{Timeout: &grace}))
	start := time.Since(starting)
	dies := func() error {
		c, err := api.ContainerInspect(t.Context(), relayName(w))
		if err != nil {
			return err
		}
		relay := func() []int { return dockertest.Processes(t, c.ID, "relay", "serve") }
		testwait.Until(t, time.Minute, "the engine has restarted the relay", func() bool { return len(relay()) > 0 })
		dockertest.KillProcesses(relay())
		return nil
	}
	for what, harm := range map[string]func() error{
		"removed": func() error {
			return api.ContainerRemove(t.Context(), relayName(w), dockerapi.ContainerRemoveOptions{Force: true})
		},
		"stopped": func() error {
			return api.ContainerStop(t.Context(), relayName(w), dockerapi.StopOptions{Timeout: &grace})
		},
		"killed": func() error { return api.ContainerKill(t.Context(), relayName(w), "KILL") },
		"dead":   dies,
		"dead so often that the engine lets 6 s pass before it restarts it": func() error {
			return errors.Join(dies(), dies(), dies(), dies(), dies(), dies(), dies())
		},
	} {
		w.exec(t, h, "true") // over a connection of the relay that will be harmed
		must(t, harm())
		w.exec(t, h, "true")
		other := world{x: newExecutor(t)}
		began := time.Now()
		other.exec(t, h, "true")
		took := time.Since(began)
		must(t, other.x.Close())
		t.Logf("%s: a command took %s", what, took.Round(time.Millisecond))
		if limit := max(5*time.Second, 5*start); took > limit { // on a busy machine a container starts slowly
			t.Errorf("%s: a command took %s, want %s", what, took, limit)
		}
	}
}

func TestARelayKeepsTheRulesThatAreAudited(t *testing.T) {
	t.Parallel()
	w, api := newWorld(t, dockertest.Busybox(t)), dockertest.Engine(t)
	checked := 0
	audit := func() (found []string) {
		checks, err := w.x.Audit(t.Context(), w.ref.LedgerID)
		must(t, err)
		for _, c := range checks {
			if c.Object != relayName(w) {
				continue
			}
			checked++
			if c.Verdict == sandbox.VerdictFinding {
				found = append(found, c.Rule)
			}
		}
		return found
	}
	if found := audit(); len(found) > 0 || checked == 0 {
		t.Errorf("%d rules, broken: %q", checked, found)
	}
	c, err := api.ContainerInspect(t.Context(), relayName(w))
	must(t, err)
	must(t, api.ContainerRemove(t.Context(), c.ID, dockerapi.ContainerRemoveOptions{Force: true}))
	c.HostConfig.CapAdd, c.HostConfig.NetworkMode, c.HostConfig.Privileged = []string{"SYS_ADMIN"}, "bridge", true
	c.HostConfig.Binds = []string{"/tmp:/host"}
	c.Config.Entrypoint = []string{"/relay", "relay", "connect"}
	_, err = api.ContainerCreate(t.Context(), c.Config, c.HostConfig, nil, nil, relayName(w))
	must(t, err)
	found := audit()
	for _, rule := range []string{"5.5", "5.6", "R.1", "R.2", "R.3", "R.4"} {
		if !slices.Contains(found, rule) {
			t.Errorf("rule %s is not reported broken: %q", rule, found)
		}
	}
}

func TestARelayGoesWithTheLastEnvironmentOfItsLedger(t *testing.T) {
	t.Parallel()
	w, api := newWorld(t, dockertest.Busybox(t)), dockertest.Engine(t)
	second := w.ref
	second.EnvironmentID = "docker-2"
	must(t, w.x.Provision(t.Context(), second, w.environment()))
	must(t, w.x.Deprovision(t.Context(), second))
	if _, err := api.ContainerInspect(t.Context(), relayName(w)); err != nil {
		t.Errorf("it went with the first: %v", err)
	}
	must(t, w.x.Deprovision(t.Context(), w.ref))
	if left := objectsOfLedger(t, w.ref.LedgerID); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// A replica may ask for a sandbox that another replica has removed with the last environment. That does not restart the
// relay.
func TestARelayThatWentWithItsLedgerStaysAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	known, unknown := w.spawn(t), w.spawn(t)
	w.exec(t, known, "true")
	other := newExecutor(t)
	for _, h := range []driver.Handle{known, unknown} {
		must(t, other.Kill(t.Context(), h))
	}
	must(t, other.Deprovision(t.Context(), w.ref))
	asks, err := sandbox.ExecRequest{Command: []string{"true"}}.Normalize()
	must(t, err)
	for what, h := range map[string]driver.Handle{"a session": known, "no session": unknown} {
		began := time.Now()
		_, err = w.x.Exec(t.Context(), h, asks)
		wantCode(t, err, sandbox.NotFound)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("with %s the answer took %s", what, took)
		}
		must(t, w.x.Kill(t.Context(), h))
		if left := objectsOfLedger(t, w.ref.LedgerID); len(left) > 0 {
			t.Errorf("with %s came back: %q", what, left)
		}
	}
}

func TestARelayIsLeftOverOnceNothingElseIs(t *testing.T) {
	t.Parallel()
	w, api := newWorld(t, dockertest.Busybox(t)), dockertest.Engine(t)
	kinds := func() (found []string) {
		all, err := w.x.Dependents(t.Context(), w.ref.LedgerID)
		must(t, err)
		for _, l := range all {
			if strings.HasPrefix(string(l.Kind), "relay") || strings.HasPrefix(string(l.Kind), "channel") {
				found = append(found, string(l.Kind))
			}
		}
		slices.Sort(found)
		return found
	}
	if found := kinds(); len(found) > 0 {
		t.Errorf("listed beside an environment: %q", found)
	}
	relay := driver.Dependent{
		Kind:   driver.DependentRelay,
		Name:   relayName(w),
		Handle: driver.Handle{LedgerID: w.ref.LedgerID, Instance: w.ref.Instance},
	}
	wantCode(t, w.x.RemoveDependent(t.Context(), relay), sandbox.Conflict)
	// The engine loses the environment but keeps the relay's objects.
	for _, left := range objectsOfLedger(t, w.ref.LedgerID) {
		kind, object, _ := strings.Cut(left, " ")
		switch {
		case strings.Contains(left, "-relay"), strings.Contains(left, "-channels"):
		case kind == "volume":
			must(t, api.VolumeRemove(t.Context(), object, true))
		case kind == "image":
			_, err := api.ImageRemove(t.Context(), strings.Trim(object, "[]"), dockerapi.ImageRemoveOptions{Force: true})
			must(t, err)
		}
	}
	if found := kinds(); !slices.Equal(found, []string{"channels", "relay", "relay-image"}) {
		t.Errorf("listed: %q", found)
	}
	must(t, w.x.RemoveDependent(t.Context(), relay))
	must(t, w.x.RemoveDependent(t.Context(), relay))
	if left := objectsOfLedger(t, w.ref.LedgerID); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestAChannelWithoutASandboxIsAnOrphan(t *testing.T) {
	t.Parallel()
	w, api := newWorld(t, dockertest.Busybox(t)), dockertest.Engine(t)
	living, dead := w.spawn(t), w.spawn(t)
	must(t, api.ContainerRemove(t.Context(), name(dead), dockerapi.ContainerRemoveOptions{Force: true}))
	all, err := w.x.Dependents(t.Context(), w.ref.LedgerID)
	must(t, err)
	for _, l := range all {
		if l.Kind != driver.DependentChannel {
			continue
		}
		err := w.x.RemoveDependent(t.Context(), l)
		switch l.SandboxID {
		case living.SandboxID:
			wantCode(t, err, sandbox.Conflict)
		case dead.SandboxID:
			must(t, err)
		}
	}
	if found := relayFiles(t, w); slices.Contains(found, dead.SandboxID) || !slices.Contains(found, living.SandboxID) {
		t.Errorf("the relay has %q", found)
	}
	must(t, w.x.Kill(t.Context(), dead))
}

// Environments of a ledger come and go concurrently, some as the first or the last one. Each engine call for one may
// fall between two calls for another.
func TestEnvironmentsComeAndGoAtOnceOverOneRelay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	must(t, w.x.Deprovision(t.Context(), w.ref))
	var all errgroup.Group
	for n := range 4 {
		all.Go(func() error {
			ref := w.ref
			ref.EnvironmentID = fmt.Sprint("at-once-", n)
			for range 3 {
				err := w.x.Provision(t.Context(), ref, w.environment())
				if err = errors.Join(err, w.x.Deprovision(t.Context(), ref)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	must(t, all.Wait())
}

// stopRelay stops the process of a relay. For the engine, it still runs.
func stopRelay(t *testing.T, w *world) {
	t.Helper()
	c, err := dockertest.Engine(t).ContainerInspect(t.Context(), relayName(w))
	must(t, err)
	pids := dockertest.Processes(t, c.ID, "relay", "serve")
	if len(pids) == 0 {
		t.Fatal("the relay has no process")
	}
	for _, pid := range pids {
		must(t, syscall.Kill(pid, syscall.SIGSTOP))
		eventually(t, "all threads of the relay are stopped", func() bool {
			threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
			must(t, err)
			return len(threads) > 0 && !slices.ContainsFunc(threads, func(path string) bool {
				status, err := os.ReadFile(path)
				return err == nil && !bytes.Contains(status, []byte("State:\tT"))
			})
		})
	}
}

// The first caller that needs it replaces a relay that runs but does not answer. The connections that it lent continue.
func TestARelayThatHangsIsReplaced(t *testing.T) {
	t.Parallel()
	w, api := newWorld(t, dockertest.Busybox(t)), dockertest.Engine(t)
	h := w.spawn(t)
	outlives(t, w.x, h, func() {
		c, err := api.ContainerInspect(t.Context(), relayName(w))
		must(t, err)
		stopRelay(t, w)
		other := world{x: newExecutor(t)}
		began := time.Now()
		other.exec(t, h, "true")
		took := time.Since(began)
		must(t, other.x.Close())
		t.Logf("a command of another client took %s", took.Round(time.Millisecond))
		if took > 20*time.Second {
			t.Errorf("a command of another client took %s", took)
		}
		now, err := api.ContainerInspect(t.Context(), relayName(w))
		must(t, err)
		if now.ID == c.ID {
			t.Error("the relay is the one that hangs")
		}
	})
	stopRelay(t, w)
	began := time.Now()
	spec := w.spec()
	must(t, w.x.Spawn(t.Context(), spec))
	t.Logf("a new sandbox took %s", time.Since(began).Round(time.Millisecond))
	w.exec(t, spec.Handle, "true")
	w.exec(t, h, "true")
}
