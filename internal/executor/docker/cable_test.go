package docker_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// cable carries bytes between an executor and the real engine, and can be cut.
type cable struct {
	host    string // as DOCKER_HOST has it
	running sync.WaitGroup

	mu   sync.Mutex // guards what follows
	ends map[net.Conn]bool
}

func newCable(t *testing.T) *cable {
	t.Helper()
	daemon, err := dockerapi.ParseHostURL(dockertest.Engine(t).DaemonHost())
	must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	c := &cable{host: "tcp://" + listener.Addr().String(), ends: make(map[net.Conn]bool)}
	c.running.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return // closed
			}
			far, err := net.Dial(daemon.Scheme, daemon.Host)
			if err != nil {
				t.Errorf("dial the engine: %v", err)
				_ = near.Close()
				continue
			}
			c.connect(near, far)
		}
	})
	t.Cleanup(func() {
		must(t, listener.Close())
		c.cut()
		c.running.Wait()
	})
	return c
}

func (c *cable) connect(near, far net.Conn) {
	c.mu.Lock()
	c.ends[near], c.ends[far] = true, true
	c.mu.Unlock()
	carry := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // ends when either is closed
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}
	c.running.Go(func() { carry(near, far) })
	c.running.Go(func() { carry(far, near) })
}

// cut breaks every connection; new ones can be made.
func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for end := range c.ends {
		_ = end.Close()
		delete(c.ends, end)
	}
}

func (c *cable) executor(t *testing.T) *docker.Executor {
	t.Helper()
	x, err := docker.New(docker.Config{Host: c.host})
	must(t, err)
	t.Cleanup(func() { must(t, x.Close()) })
	return x
}

// The engine behind a cable is reached by TCP, so the channel runs through a command in the relay.
func TestACommandOutlivesABrokenConnectionToARemoteEngine(t *testing.T) {
	t.Parallel()
	w, c := newWorld(t, dockertest.Busybox(t)), newCable(t)
	x, h := c.executor(t), w.spawn(t)
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
	c.cut()
	rest, err := io.ReadAll(out)
	must(t, err)
	must(t, <-ended)
	if lines := strings.Count(string(rest), "\n"); lines != 100000 || !strings.HasSuffix(string(rest), "\n100000\n") {
		t.Errorf("after the cut came %d lines, want 100000", lines)
	}
}

func TestAWatchWhoseConnectionBreaksEnds(t *testing.T) {
	t.Parallel()
	c := newCable(t)
	x := c.executor(t)
	err := x.Watch(t.Context(), "ledgerofnobody22", c.cut, func(string) {})
	wantCode(t, err, sandbox.Unavailable)
}
