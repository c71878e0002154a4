package docker_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// throughProxy is an executor of the same owner behind a proxy.
func throughProxy(t *testing.T) (*docker.Executor, *dockertest.Proxy) {
	t.Helper()
	p := dockertest.NewProxy(t)
	x, err := docker.New(docker.Config{Host: p.Host()})
	must(t, err)
	t.Cleanup(func() { must(t, x.Close()) })
	return x, p
}

// openAndRefuse answers the start of a process as an engine does that opens the streams and only then finds
// that it cannot start anything: in the stream, in words.
func openAndRefuse(t *testing.T, rw http.ResponseWriter, r *http.Request, words string) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		t.Error(err)
		return
	}
	conn, buf, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = conn.Close() }() // what is lost of it shows in the answer
	_, _ = fmt.Fprint(buf, "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
	_, _ = dockerapi.NewStdWriter(buf, dockerapi.Stdout).Write([]byte(words + "\r\n"))
	if err := buf.Flush(); err != nil {
		t.Error(err)
	}
}

func TestACommandThatTheEngineTookButDidNotTryIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	h := w.spawn(t)
	x, p := throughProxy(t)
	r, err := sandbox.ExecRequest{Command: []string{"echo", "once"}}.Normalize()
	must(t, err)

	var refused atomic.Int64
	refusing := func(times int64) {
		p.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
			if strings.HasSuffix(r.URL.Path, "/start") && refused.Add(1) <= times {
				openAndRefuse(t, rw, r, "Container is paused, unpause the container before exec")
				return
			}
			pass(rw, r)
		})
	}
	refusing(2)
	res, err := x.Exec(t.Context(), h, r)
	must(t, err)
	if string(res.Stdout) != "once\n" {
		t.Errorf("the command wrote %q", res.Stdout)
	}

	refusing(1 << 30)
	_, err = x.Exec(t.Context(), h, r)
	wantCode(t, err, sandbox.Unavailable)
	if !strings.Contains(err.Error(), "unpause the container") {
		t.Errorf("the error does not have the engine's words: %v", err)
	}
}

func TestASandboxThatIsSlowToFreezeIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	h := w.spawn(t)
	x, p := throughProxy(t)
	var refused atomic.Int64
	p.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		if strings.HasSuffix(r.URL.Path, "/pause") && refused.Add(1) <= 2 {
			http.Error(rw, `{"message":"OCI runtime pause failed: unable to freeze: unknown"}`, http.StatusInternalServerError)
			return
		}
		pass(rw, r)
	})
	must(t, x.Sleep(t.Context(), h, sandbox.SleepPause))
	w.wantState(t, h, sandbox.StatePaused)
	must(t, x.Wake(t.Context(), h))
}
