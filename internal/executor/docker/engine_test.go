package docker_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// wire is a proxy between an executor and the real engine.
type wire struct {
	host string // in DOCKER_HOST format
	// another makes an empty engine with another id answer.
	another atomic.Bool
	// lose names requests, as "METHOD path-part", whose answers are lost.
	lose atomic.Pointer[string]
}

func newWire(t *testing.T) *wire {
	t.Helper()
	daemon, err := dockerapi.ParseHostURL(dockertest.Engine(t).DaemonHost())
	must(t, err)
	network, address := daemon.Scheme, daemon.Host
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, address)
	}}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "engine"})
	proxy.Transport, proxy.FlushInterval = transport, -1
	w := &wire{}
	w.drop("")
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		method, part, losing := strings.Cut(*w.lose.Load(), " ")
		switch {
		case w.another.Load():
			anotherEngine(rw, r)
		case losing && r.Method == method && strings.Contains(r.URL.Path, part):
			proxy.ServeHTTP(httptest.NewRecorder(), r) // the engine carries the request out
			panic(http.ErrAbortHandler)                // then the connection breaks
		default:
			proxy.ServeHTTP(rw, r)
		}
	}))
	t.Cleanup(func() { server.Close(); transport.CloseIdleConnections() })
	w.host = "tcp://" + server.Listener.Addr().String()
	return w
}

// anotherEngine answers like an engine without any objects.
func anotherEngine(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/info"):
		_ = json.NewEncoder(rw).
			Encode(map[string]any{"ID": "another-engine", "Architecture": "x86_64", "LiveRestoreEnabled": true})
	case strings.HasSuffix(r.URL.Path, "/containers/json"):
		_, _ = io.WriteString(rw, "[]")
	default:
		rw.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(rw, `{"message":"no such thing"}`)
	}
}

func (w *wire) drop(answers string) { w.lose.Store(&answers) }

func (w *wire) executor(t *testing.T) *docker.Executor {
	t.Helper()
	x, err := docker.New(docker.Config{Host: w.host})
	must(t, err)
	t.Cleanup(func() { must(t, x.Close()) })
	return x
}

func TestAnotherEngineNeverSaysThatASandboxIsGone(t *testing.T) {
	t.Parallel()
	w, between := newWorld(t, dockertest.Busybox(t)), newWire(t)
	x := between.executor(t)
	spec := w.spec()
	must(t, w.x.Spawn(t.Context(), spec))
	_, err := x.Inspect(t.Context(), spec.Handle) // the executor knows the engine now, and has no connection to the relay
	must(t, err)
	r, err := sandbox.ExecRequest{Command: []string{"true"}}.Normalize()
	must(t, err)

	between.another.Store(true)
	calls := map[string]func() error{
		"inspect": func() error { _, err := x.Inspect(t.Context(), spec.Handle); return err },
		"usage":   func() error { _, err := x.Usage(t.Context(), spec.Handle); return err },
		"exec":    func() error { _, err := x.Exec(t.Context(), spec.Handle, r); return err },
		"sleep":   func() error { return x.Sleep(t.Context(), spec.Handle, sandbox.SleepStop) },
		"wake":    func() error { _, err := x.Wake(t.Context(), spec.Handle); return err },
		"kill":    func() error { return x.Kill(t.Context(), spec.Handle) },
		"spawn":   func() error { return x.Spawn(t.Context(), w.spec()) },
	}
	for what, call := range calls {
		if err := call(); sandbox.CodeOf(err) != sandbox.Unavailable || sandbox.ReasonOf(err) != sandbox.ReasonOtherInstance {
			t.Errorf("%s: code %q, reason %q: %v", what, sandbox.CodeOf(err), sandbox.ReasonOf(err), err)
		}
	}
	between.another.Store(false)
	res, err := x.Exec(t.Context(), spec.Handle, r)
	must(t, err)
	if res.ExitCode != 0 {
		t.Errorf("a command on the engine that is its own: %+v", res)
	}
	o, err := x.Inspect(t.Context(), spec.Handle)
	must(t, err)
	if o.State != sandbox.StateRunning {
		t.Errorf("the sandbox is %s", o.State)
	}
}

func TestALostAnswerIsAnUnknownOutcomeAndCanBeRetried(t *testing.T) {
	t.Parallel()
	w, between := newWorld(t, dockertest.Busybox(t)), newWire(t)
	x := between.executor(t)
	must(t, x.Spawn(t.Context(), w.spec())) // it starts the relay, with a call that hangs if its answer is lost
	spec := w.spec()
	for _, lost := range []string{"POST /volumes/create", "POST /containers/create", "POST /start"} {
		between.drop(lost)
		wantCode(t, x.Spawn(t.Context(), spec), sandbox.UnknownOutcome)
	}
	between.drop("")
	must(t, x.Spawn(t.Context(), spec))
	list, err := x.List(t.Context(), w.ref.LedgerID)
	must(t, err)
	if len(list) != 2 || list[0].State != sandbox.StateRunning || list[1].State != sandbox.StateRunning {
		t.Errorf("the retries made %+v", list)
	}
	between.drop("POST /pause")
	must(t, x.Sleep(t.Context(), spec.Handle, sandbox.SleepPause)) // an inspection shows that it sleeps
	between.drop("DELETE /containers")
	wantCode(t, x.Kill(t.Context(), spec.Handle), sandbox.UnknownOutcome)
	between.drop("DELETE /volumes")
	wantCode(t, x.Kill(t.Context(), spec.Handle), sandbox.UnknownOutcome)
	between.drop("")
	must(t, x.Kill(t.Context(), spec.Handle))
}

func TestAHangingEngineDoesNotHoldTheCaller(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { must(t, listener.Close()) }() // it accepts connections and never answers
	x, err := docker.New(docker.Config{Host: "tcp://" + listener.Addr().String()})
	must(t, err)
	defer func() { must(t, x.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	wantCode(t, x.Kill(ctx, driver.Handle{LedgerID: "l", EnvironmentID: "e", SandboxID: "s", Instance: "i"}),
		sandbox.Unavailable)
}

func TestEngineIsFoundLikeTheDockerCommandFindsIt(t *testing.T) {
	t.Parallel()
	between := newWire(t)
	between.another.Store(true)
	dir := t.TempDir()
	create := exec.CommandContext(t.Context(), "docker", "context", "create", "elsewhere",
		"--docker", "host="+between.host)
	create.Env = append(os.Environ(), "DOCKER_CONFIG="+dir)
	if out, err := create.CombinedOutput(); err != nil {
		t.Fatalf("docker context create: %v: %s", err, out)
	}
	current := filepath.Join(t.TempDir(), "config.json")
	must(t, os.CopyFS(filepath.Dir(current), os.DirFS(dir)))
	must(t, os.WriteFile(current, []byte(`{"currentContext":"elsewhere"}`), 0o600))
	for name, env := range map[string][]string{
		"configured context": {"DOCKER_CONFIG=" + dir, probeContext + "=elsewhere"},
		"DOCKER_CONTEXT":     {"DOCKER_CONFIG=" + dir, probeContext + "=", "DOCKER_CONTEXT=elsewhere"},
		"current context":    {"DOCKER_CONFIG=" + filepath.Dir(current), probeContext + "="},
		"DOCKER_HOST": {"DOCKER_CONFIG=" + filepath.Dir(current), probeContext + "=", "DOCKER_HOST=" + between.host,
			"DOCKER_CONTEXT=missing"},
	} {
		probe := exec.CommandContext(t.Context(), os.Args[0])
		probe.Env = slices.Concat(os.Environ(), []string{"DOCKER_HOST="}, env) // whatever engine the tests use
		if id, err := probe.CombinedOutput(); err != nil || string(id) != "another-engine" {
			t.Errorf("%s: found engine %q, %v", name, id, err)
		}
	}
	_, err := docker.New(docker.Config{Context: "no-such-context"})
	wantCode(t, err, sandbox.Invalid)
}
