package docker_test

import (
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

func TestACommandWhoseConnectionBreaksIsEnded(t *testing.T) {
	t.Parallel()
	w, c := newWorld(t, dockertest.Busybox(t)), newCable(t)
	x, h := c.executor(t), w.spawn(t)
	out, in := io.Pipe()
	r, err := sandbox.ExecRequest{Command: []string{"sh", "-c", "echo begun; setsid sleep 7101 & sleep 7101"}, Stdout: in}.Normalize()
	must(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := x.Exec(t.Context(), h, r)
		ended <- err
	}()
	_, err = io.ReadFull(out, make([]byte, len("begun\n")))
	must(t, err)
	c.cut()
	wantCode(t, <-ended, sandbox.UnknownOutcome)
	if got := w.exec(t, h, "ps", "-o", "args"); strings.Contains(got, "7101") {
		t.Errorf("the command lives on:\n%s", got)
	}
}

func TestAWatchWhoseConnectionBreaksEnds(t *testing.T) {
	t.Parallel()
	c := newCable(t)
	x := c.executor(t)
	err := x.Watch(t.Context(), "ledgerofnobody22", c.cut, func(string) {})
	wantCode(t, err, sandbox.Unavailable)
}
