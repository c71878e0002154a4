package reconciler_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/servetest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// serveVar turns the test binary into a reconciler, so that tests can kill one.
const serveVar = "SANDBOX_TEST_SERVE"

func TestMain(m *testing.M) {
	servetest.RunCommand()
	if config := os.Getenv(serveVar); config != "" {
		if err := serve(config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(postgrestest.M(m).Run())
}

func serve(config string) error {
	var c reconciler.Config
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	c.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	return reconciler.Serve(context.Background(), c, func(s reconciler.Started) { fmt.Println(s.Address) })
}

// world is one ledger with its credentials, and a reconciler that tests start and kill.
type world struct {
	*testing.T
	config  reconciler.Config
	secret  webhook.Secret
	token   string
	process *exec.Cmd
	url     string
	service service.Service
	image   string
	ground  ground
}

// newWorld starts a reconciler process on a fresh ledger and the machine's Docker Engine, or the engine at host. It
// removes all objects at the end.
func newWorld(t *testing.T, host string, change ...func(*reconciler.Config)) *world {
	t.Helper()
	return newWorldOn(t, onDocker{}, host, change...)
}

// newWorldOn is newWorld with environments on another backend.
func newWorldOn(t *testing.T, g ground, host string, change ...func(*reconciler.Config)) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{T: t, ground: g, token: access.NewToken(), image: dockertest.Busybox(t)}
	secret := webhook.NewSecret()
	var err error
	if w.secret, err = webhook.ParseSecret(secret); err != nil {
		t.Fatal(err)
	}
	w.config = reconciler.Config{
		Listen: "127.0.0.1:0", LedgerURL: "sqlite://" + filepath.Join(dir, "ledger.db"), Version: "test",
		TokenFile: filepath.Join(dir, "tokens"), SecretFile: filepath.Join(dir, "secrets"), Docker: docker.Config{Host: host},
	}
	for _, c := range change {
		c(&w.config)
	}
	if host != "" {
		w.copyImage(host)
	}
	w.write(w.config.TokenFile, "test "+w.token+"\n")
	w.write(w.config.SecretFile, secret+"\n")
	w.start()
	t.Cleanup(w.cleanup)
	return w
}

// copyImage copies the world's image to another engine.
func (w *world) copyImage(host string) {
	w.Helper()
	file := filepath.Join(w.TempDir(), "image.tar")
	for _, args := range [][]string{{"save", "-o", file, w.image}, {"--host", host, "load", "-i", file}} {
		if out, err := exec.Command("docker", args...).CombinedOutput(); err != nil {
			w.Fatalf("docker %v: %v\n%s", args, err, out)
		}
	}
}

func (w *world) write(path, text string) {
	w.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
}

// join starts another replica until the test ends: a reconciler process on the same ledger, with the same credentials
// and with the engine at host.
func (w *world) join(host string) *world {
	w.Helper()
	replica := *w
	replica.config.Docker.Host = host
	replica.start()
	w.Cleanup(replica.kill)
	return &replica
}

// reconciler returns a command that runs a reconciler process.
func (w *world) reconciler() *exec.Cmd {
	w.Helper()
	config, err := json.Marshal(w.config)
	if err != nil {
		w.Fatal(err)
	}
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), serveVar+"="+string(config), "GOGC=200") // measure its memory as users run it
	return process
}

// start runs a reconciler process until kill.
func (w *world) start() {
	w.Helper()
	w.process = w.reconciler()
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
	w.url = "http://" + address
	if w.service, err = client.New(client.Config{URL: w.url, Token: w.token}); err != nil {
		w.Fatal(err)
	}
}

// testLog passes the log of a process on to the test's.
type testLog struct{ t *testing.T }

func (l *testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSuffix(string(b), "\n"))
	return len(b), nil
}

// kill ends the reconciler as a power failure would, unless it has exited.
func (w *world) kill() {
	w.Helper()
	if err := w.process.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		w.Fatal(err)
	}
	_ = w.process.Wait() // killed, as intended
}

func (w *world) cleanup() {
	defer w.kill()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	envs, err := w.service.ListEnvironments(ctx)
	if err != nil {
		w.Error(err)
	}
	for _, e := range envs {
		if err := w.service.DeleteEnvironment(ctx, sandbox.DeleteEnvironment{ID: e.ID, Force: true}); err != nil {
			w.Error(err)
		}
	}
	if left := w.docker("ps", "-aq", "--filter", w.labelled()) +
		w.docker("volume", "ls", "-q", "--filter", w.labelled()); left != "" {
		w.Errorf("left on the engine: %s", left)
	}
}

// labelled returns docker's filter for the objects of the world's ledger.
func (w *world) labelled() string {
	w.Helper()
	info, err := w.service.Ledger(context.Background())
	if err != nil {
		w.Fatal(err)
	}
	return "label=io.sandbox-lease.ledger=" + info.ID
}

func (w *world) docker(args ...string) string {
	w.Helper()
	if w.config.Docker.Host != "" {
		args = append([]string{"--host", w.config.Docker.Host}, args...)
	}
	out, err := exec.Command("docker", args...).CombinedOutput()
	if err != nil {
		w.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// sandboxes selects the containers of sandboxes: a ledger also has a relay on its engine.
const sandboxes = "label=io.sandbox-lease.role=sandbox"

func (w *world) containers() int {
	return len(strings.Fields(w.docker("ps", "-q", "--filter", w.labelled(), "--filter", sandboxes)))
}

func (w *world) environment(id string, change ...func(*sandbox.PutEnvironment)) {
	w.Helper()
	p := sandbox.PutEnvironment{
		ID:              id,
		EnvironmentSpec: sandbox.EnvironmentSpec{Type: sandbox.TypeCatan, Network: sandbox.NetworkNone},
	}
	w.ground.place(w, &p.EnvironmentSpec)
	for _, c := range change {
		c(&p)
	}
	if _, err := w.service.PutEnvironment(w.Context(), p); err != nil {
		w.Fatal(err)
	}
}

func (w *world) acquire(agent, environment string) sandbox.Lease {
	w.Helper()
	a, err := w.service.Acquire(w.Context(), sandbox.Acquire{AgentDID: agent, EnvironmentID: environment})
	if err != nil {
		w.Fatal(err)
	}
	return a.Lease
}

func (w *world) lease(id string) sandbox.Lease {
	w.Helper()
	l, err := w.service.GetLease(w.Context(), id)
	if err != nil {
		w.Fatal(err)
	}
	return l
}

// exec runs a command that must succeed and returns its output.
func (w *world) exec(lease string, command ...string) string {
	w.Helper()
	r, err := w.service.Exec(w.Context(), sandbox.LeaseRef{ID: lease}, sandbox.ExecRequest{Command: command})
	if err != nil || r.ExitCode != 0 {
		w.Fatalf("%v: exit code %d, %v\n%s%s", command, r.ExitCode, err, r.Stdout, r.Stderr)
	}
	return string(r.Stdout)
}

// post sends a signed condition and returns the reply.
func (w *world) post(id string, c sandbox.Condition) (int, sandbox.Receipt) {
	w.Helper()
	status, receipt, err := w.send(id, c)
	if err != nil {
		w.Fatal(err)
	}
	return status, receipt
}

// lastPost sends a signed condition to a reconciler that dies of its work, perhaps before it has answered.
func (w *world) lastPost(id string, c sandbox.Condition) {
	w.Helper()
	if _, _, err := w.send(id, c); err != nil {
		w.Logf("the answer to %s was lost: %v", id, err)
	}
}

func (w *world) send(id string, c sandbox.Condition) (status int, receipt sandbox.Receipt, err error) {
	w.Helper()
	body, err := json.Marshal(c)
	if err != nil {
		w.Fatal(err)
	}
	req, err := http.NewRequestWithContext(w.Context(), http.MethodPost, w.url+"/v1/conditions", bytes.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if err := w.secret.Sign(req.Header, id, time.Now(), body); err != nil {
		w.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, receipt, err
	}
	defer func() { _ = res.Body.Close() }()
	err = json.NewDecoder(res.Body).Decode(&receipt)
	return res.StatusCode, receipt, err
}

// eventually polls ok every 20 ms, for at most a minute.
func (w *world) eventually(what string, ok func() bool) {
	w.Helper()
	testwait.Until(w, time.Minute, what, ok)
}
