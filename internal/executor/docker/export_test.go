package docker_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// begun creates a sandbox with much data under /data, and begins to read it with another executor.
func begun(t *testing.T, w *world, x *docker.Executor) (driver.Handle, io.ReadCloser) {
	t.Helper()
	h := w.spawn(t)
	w.exec(t, h, "sh", "-c", "yes | head -c 150000000 > /data/large") // several times what sockets can buffer
	r, err := x.Export(t.Context(), h)
	must(t, err)
	_, err = io.ReadFull(r, make([]byte, 1<<20))
	must(t, err)
	return h, r
}

func (w *world) wantState(t *testing.T, h driver.Handle, want sandbox.State) {
	t.Helper()
	o, err := w.x.Inspect(t.Context(), h)
	must(t, err)
	if o.State != want {
		t.Errorf("the sandbox is %s, want %s", o.State, want)
	}
}

func TestASandboxWhoseExportDiesIsWokenByAnother(t *testing.T) {
	t.Parallel()
	w, c := newWorld(t, dockertest.Busybox(t)), dockertest.NewCuttableProxy(t)
	h, r := begun(t, w, executorOver(t, c))
	c.Cut()
	_, err := io.Copy(io.Discard, r)
	wantCode(t, err, sandbox.Unavailable)
	w.wantState(t, h, sandbox.StatePaused)
	wake(t, w.x, h)
	if got := w.exec(t, h, "echo", "fine"); got != "fine\n" {
		t.Errorf("afterwards the sandbox says %q", got)
	}
	must(t, r.Close())
	w.wantState(t, h, sandbox.StateRunning)
}

func TestAnExportThatCannotLetItsSandboxContinueSaysSo(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, dockertest.Busybox(t)), dockertest.NewProxy(t)
	x, err := docker.New(docker.Config{Host: p.Host()})
	must(t, err)
	t.Cleanup(func() { must(t, x.Close()) })
	h, r := begun(t, w, x)
	p.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		if strings.HasSuffix(r.URL.Path, "/unpause") {
			http.Error(rw, `{"message":"no"}`, http.StatusInternalServerError)
			return
		}
		pass(rw, r)
	})
	wantCode(t, r.Close(), sandbox.Failed)
	w.wantState(t, h, sandbox.StatePaused)
	wake(t, w.x, h)
}

func TestALostAnswerDoesNotKeepASandboxFrozen(t *testing.T) {
	t.Parallel()
	w, between := newWorld(t, dockertest.Busybox(t)), newWire(t)
	x, h := between.executor(t), w.spawn(t)
	for _, lost := range []string{"POST /pause", "POST /unpause"} {
		between.drop(lost)
		r, err := x.Export(t.Context(), h)
		must(t, err)
		_, err = io.Copy(io.Discard, r)
		must(t, errors.Join(err, r.Close()))
		w.wantState(t, h, sandbox.StateRunning)
	}
	between.drop("GET /archive")
	_, err := x.Export(t.Context(), h)
	wantCode(t, err, sandbox.Unavailable)
	w.wantState(t, h, sandbox.StateRunning)
}

func TestAnArchiveThatDoesNotComeDoesNotKeepASandboxFrozen(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, dockertest.Busybox(t)), dockertest.NewProxy(t)
	x, err := docker.New(docker.Config{Host: p.Host()})
	must(t, err)
	t.Cleanup(func() { must(t, x.Close()) })
	h := w.spawn(t)
	asked := make(chan struct{})
	p.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		if strings.HasSuffix(r.URL.Path, "/archive") {
			close(asked)
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		}
		pass(rw, r)
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { <-asked; cancel() }()
	_, err = x.Export(ctx, h)
	wantCode(t, err, sandbox.Unavailable)
	w.wantState(t, h, sandbox.StateRunning)
}

// TestCommandsAndExportsAtOnceDoNotWedgeTheEngine: if Engine 20.10 pauses a container while it starts a process in it,
// it never answers about that container again.
func TestCommandsAndExportsAtOnceDoNotWedgeTheEngine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	h := w.spawn(t)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var done atomic.Int64
	for range 3 {
		running.Go(func() {
			r, err := sandbox.ExecRequest{Command: []string{"true"}}.Normalize()
			for ctx.Err() == nil {
				if err == nil {
					_, err = w.x.Exec(t.Context(), h, r)
				}
				switch {
				case err == nil:
					done.Add(1)
				case sandbox.CodeOf(err) != sandbox.Conflict: // it was frozen
					t.Error(err)
					return
				}
				err = nil
			}
		})
	}
	for range 30 {
		x, err := w.x.Export(t.Context(), h)
		if err != nil {
			t.Error(err)
			break
		}
		_, err = io.Copy(io.Discard, x)
		if err := errors.Join(err, x.Close()); err != nil {
			t.Error(err)
		}
	}
	stop()
	running.Wait()
	if got := w.exec(t, h, "echo", "fine"); got != "fine\n" || done.Load() == 0 {
		t.Errorf("after %d commands the sandbox says %q", done.Load(), got)
	}
}
