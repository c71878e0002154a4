package sdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// serveVar turns the test binary into a reconciler, so that tests can kill one.
const serveVar = "SANDBOX_TEST_SERVE"

func TestMain(m *testing.M) {
	if config := os.Getenv(serveVar); config != "" {
		if err := serve(config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if packed != "" {
		_ = os.RemoveAll(packed)
	}
	os.Exit(code)
}

func serve(config string) error {
	var c reconciler.Config
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	c.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	return reconciler.Serve(context.Background(), c, func(s reconciler.Started) { fmt.Println(s.Address) })
}

// world is a reconciler on the machine's Docker Engine, behind a proxy that breaks requests.
type world struct {
	*testing.T
	config  reconciler.Config
	token   string
	player  string // a token of scope lease
	secret  string
	image   string
	proxy   *proxy
	process *exec.Cmd
	direct  *client.Client
}

// newWorld starts a reconciler process on a fresh ledger. It removes all objects at the end.
func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{T: t, token: access.NewToken(), player: access.NewToken(), secret: webhook.NewSecret(),
		image: dockertest.Busybox(t)}
	w.config = reconciler.Config{
		Listen: "127.0.0.1:0", LedgerURL: "sqlite://" + filepath.Join(dir, "ledger.db"), Version: "test",
		TokenFile: filepath.Join(dir, "tokens"), SecretFile: filepath.Join(dir, "secrets"),
	}
	write(t, w.config.TokenFile, "test "+w.token+"\nplayer "+w.player+" scopes=lease\n")
	write(t, w.config.SecretFile, w.secret+"\n")
	w.proxy = newProxy(t)
	w.start()
	t.Cleanup(w.cleanup)
	return w
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// start runs a reconciler process until kill.
func (w *world) start() {
	w.Helper()
	config, err := json.Marshal(w.config)
	if err != nil {
		w.Fatal(err)
	}
	w.process = exec.Command(os.Args[0])
	w.process.Env = append(os.Environ(), serveVar+"="+string(config))
	w.process.Stderr = &testLog{t: w.T}
	out, err := w.process.StdoutPipe()
	if err != nil {
		w.Fatal(err)
	}
	if err := w.process.Start(); err != nil {
		w.Fatal(err)
	}
	var address string
	if _, err := fmt.Fscanln(out, &address); err != nil {
		w.Fatalf("the reconciler did not start: %v", err)
	}
	if w.direct, err = client.New(client.Config{URL: "http://" + address, Token: w.token}); err != nil {
		w.Fatal(err)
	}
	w.proxy.to(address)
}

// kill ends the reconciler as a power failure would, unless it has exited.
func (w *world) kill() {
	w.Helper()
	if err := w.process.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		w.Fatal(err)
	}
	_ = w.process.Wait() // killed, as intended
}

// testLog passes the log of a process on to the test's.
type testLog struct{ t *testing.T }

func (l *testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSuffix(string(b), "\n"))
	return len(b), nil
}

func (w *world) cleanup() {
	defer w.kill()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	envs, err := w.direct.ListEnvironments(ctx)
	if err != nil {
		w.Error(err)
	}
	for _, e := range envs {
		if err := w.direct.DeleteEnvironment(ctx, sandbox.DeleteEnvironment{ID: e.ID, Force: true}); err != nil {
			w.Error(err)
		}
	}
}

// environment creates an environment of busybox without a network.
func (w *world) environment(id string) {
	w.Helper()
	p := sandbox.PutEnvironment{ID: id, EnvironmentSpec: sandbox.EnvironmentSpec{
		Type: sandbox.TypeCatan, Image: w.image, Network: sandbox.NetworkNone,
	}}
	if _, err := w.direct.PutEnvironment(w.Context(), p); err != nil {
		w.Fatal(err)
	}
}

// variables returns the environment variables with which a program reaches the reconciler through the proxy.
func (w *world) variables() []string {
	return []string{"SANDBOX_RECONCILER_URL=" + w.proxy.url, "SANDBOX_RECONCILER_TOKEN=" + w.token,
		"SANDBOX_WEBHOOK_SECRET=" + w.secret, "SANDBOX_TEST_PLAYER_TOKEN=" + w.player}
}
