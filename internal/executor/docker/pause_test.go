package docker_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// carriersLost counts the lost connections to sandboxes, and the failed dials.
type carriersLost struct {
	slog.Handler
	n *atomic.Int64
}

// Enabled implements slog.Handler.
func (carriersLost) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (c carriersLost) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "a carrier is gone" || r.Message == "no carrier" {
		c.n.Add(1)
	}
	return c.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (c carriersLost) WithAttrs(attrs []slog.Attr) slog.Handler {
	return carriersLost{c.Handler.WithAttrs(attrs), c.n}
}

// The executor or another program pauses a sandbox for longer than the silence after which a connection counts as dead.
// The connection stays, and its command continues.
func TestAPauseIsNoSilence(t *testing.T) {
	t.Parallel()
	const paused = 23 * time.Second
	w, api := newWorld(t, dockertest.Busybox(t)), dockertest.Engine(t)
	for how, pauses := range map[string]struct {
		pause, thaw func(x *docker.Executor, h driver.Handle) error
	}{
		"BySleep": {
			func(x *docker.Executor, h driver.Handle) error { return x.Sleep(t.Context(), h, sandbox.SleepPause) },
			func(x *docker.Executor, h driver.Handle) error { _, err := x.Wake(t.Context(), h); return err },
		},
		"ByAnotherProgram": {
			func(_ *docker.Executor, h driver.Handle) error { return api.ContainerPause(t.Context(), name(h)) },
			func(_ *docker.Executor, h driver.Handle) error { return api.ContainerUnpause(t.Context(), name(h)) },
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			var lost atomic.Int64
			x, err := docker.New(docker.Config{Logger: slog.New(carriersLost{slog.DiscardHandler, &lost})})
			must(t, err)
			t.Cleanup(func() { must(t, x.Close()) })
			h := w.spawn(t)
			out, ended := numbers(t, x, h, 50)
			_, err = io.ReadFull(out, make([]byte, len("1\n")))
			must(t, err)
			must(t, pauses.pause(x, h))
			time.Sleep(paused) //nolint:forbidigo // a pause is real time
			if n := lost.Load(); n != 0 {
				t.Errorf("%d connections were given up while the sandbox was paused", n)
			}
			must(t, pauses.thaw(x, h))
			rest, err := io.ReadAll(out)
			must(t, err)
			must(t, <-ended)
			if got := strings.Fields(string(rest)); len(got) != 49 || got[48] != "50" {
				t.Errorf("after the pause came %q", got)
			}
			if n := lost.Load(); n != 0 {
				t.Errorf("%d connections were given up after the pause", n)
			}
		})
	}
}

// numbers runs a command that writes a number every 50 ms.
func numbers(t *testing.T, x *docker.Executor, h driver.Handle, count int) (out io.Reader, ended <-chan error) {
	t.Helper()
	script := fmt.Sprintf("i=0; while [ $i -lt %d ]; do i=$((i+1)); echo $i; sleep 0.05; done", count)
	out, in := io.Pipe()
	r, err := sandbox.ExecRequest{Command: []string{"sh", "-c", script}, Stdout: in}.Normalize()
	must(t, err)
	end := make(chan error, 1)
	go func() {
		res, err := x.Exec(t.Context(), h, r)
		if err == nil && res.ExitCode != 0 {
			err = fmt.Errorf("exit code %d", res.ExitCode)
		}
		_ = in.CloseWithError(err)
		end <- err
	}()
	return out, end
}
