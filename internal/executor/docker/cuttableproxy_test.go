package docker_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func executorOver(t *testing.T, c *dockertest.CuttableProxy) *docker.Executor {
	t.Helper()
	x, err := docker.New(docker.Config{Host: c.Host()})
	must(t, err)
	t.Cleanup(func() { must(t, x.Close()) })
	return x
}

// The engine behind a proxy is reached over TCP, so the channel runs through a command in the relay.
func TestACommandOutlivesABrokenConnectionToARemoteEngine(t *testing.T) {
	t.Parallel()
	w, c := newWorld(t, dockertest.Busybox(t)), dockertest.NewCuttableProxy(t)
	outlives(t, executorOver(t, c), w.spawn(t), c.Cut)
}

// A channel that carries nothing any more is closed, and a new one is opened.
func TestACommandOutlivesAConnectionThatFallsSilent(t *testing.T) {
	t.Parallel()
	w, c := newWorld(t, dockertest.Busybox(t)), dockertest.NewCuttableProxy(t)
	began := time.Now()
	outlives(t, executorOver(t, c), w.spawn(t), c.Silence)
	// 15 s of silence of the channel, and 15 s for a request to the engine.
	if took := time.Since(began); took > 35*time.Second {
		t.Errorf("the command was followed to its end only after %s", took)
	}
}

// The relay accepts connections but answers none. So the channel falls silent, and no new one opens.
func TestACommandOutlivesARelayThatIsPaused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	outlives(t, w.x, w.spawn(t), func() { must(t, dockertest.Engine(t).ContainerPause(t.Context(), relayName(w))) })
}

// For the engine, a relay whose process is stopped is running. Its sessions through a remote engine are silent.
func TestACommandOutlivesARelayThatHangs(t *testing.T) {
	t.Parallel()
	w, c := newWorld(t, dockertest.Busybox(t)), dockertest.NewCuttableProxy(t)
	var began time.Time
	outlives(t, executorOver(t, c), w.spawn(t), func() {
		began = time.Now()
		stopRelay(t, w)
	})
	// 15 s of silence of the channel, 3 s for a dial and 4 s for an inspection.
	if took := time.Since(began); took > 35*time.Second {
		t.Errorf("the command was followed to its end only after %s", took)
	}
}

// outlives runs a command that writes before and after harm hits its connection.
func outlives(t *testing.T, x *docker.Executor, h driver.Handle, harm func()) {
	t.Helper()
	out, in := io.Pipe()
	r, err := sandbox.ExecRequest{Command: []string{"sh", "-c", "echo begun; sleep 1; seq 100000"}, Stdout: in}.Normalize()
	must(t, err)
	ended := make(chan error, 1)
	go func() {
		res, err := x.Exec(t.Context(), h, r)
		if err == nil && res.ExitCode != 0 {
			err = fmt.Errorf("exit code %d", res.ExitCode)
		}
		_ = in.CloseWithError(err)
		ended <- err
	}()
	_, err = io.ReadFull(out, make([]byte, len("begun\n")))
	must(t, err)
	harm()
	rest, err := io.ReadAll(out)
	must(t, err)
	must(t, <-ended)
	if lines := strings.Count(string(rest), "\n"); lines != 100000 || !strings.HasSuffix(string(rest), "\n100000\n") {
		t.Errorf("afterwards came %d lines, want 100000", lines)
	}
}

func TestAWatchWhoseConnectionBreaksEnds(t *testing.T) {
	t.Parallel()
	c := dockertest.NewCuttableProxy(t)
	x := executorOver(t, c)
	err := x.Watch(t.Context(), "ledgerofnobody22", c.Cut, func(string) {})
	wantCode(t, err, sandbox.Unavailable)
}
