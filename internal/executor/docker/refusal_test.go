package docker_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// throughProxy returns an executor behind a proxy.
func throughProxy(t *testing.T) (*docker.Executor, *dockertest.Proxy) {
	t.Helper()
	p := dockertest.NewProxy(t)
	x, err := docker.New(docker.Config{Host: p.Host()})
	must(t, err)
	t.Cleanup(func() { must(t, x.Close()) })
	return x, p
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
	wake(t, x, h)
}
