package environments_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// outside is the address of this machine for the gateways of sandboxes: on the engine's bridge, under names that only
// they can resolve.
type outside struct{ address, subnet string }

func (o outside) hosts() []string {
	return []string{"llm.test:" + o.address, "relay.test:" + o.address, "git.test:" + o.address, "evil.test:" + o.address}
}

// serve answers requests until the test ends. It returns the URL under which sandboxes call a name, and the host that
// their rules must allow.
func (o outside) serve(t *testing.T, name string, h http.Handler) (url, host string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(o.address, "0"))
	must(t, err)
	s := httptest.NewUnstartedServer(h)
	must(t, s.Listener.Close())
	s.Listener = l
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	_, port, err := net.SplitHostPort(l.Addr().String())
	must(t, err)
	host = net.JoinHostPort(name, port)
	return "http://" + host, host
}

// world is one applied example with its surroundings.
type world struct {
	*testing.T
	providertest.Reconciler
	world     *providertest.World
	terraform *providertest.CLI
	outside   outside
	model     *model
	relay     *relay
	service   service.Service
	// name is the name of the environment.
	name      string
	variables map[string]any
}

// newWorld starts the surroundings of an example, but does not apply it.
func newWorld(t *testing.T, example string) *world {
	t.Helper()
	long(t)
	w := &world{T: t, world: providertest.New(t), name: example + "-" + sandbox.RandomIDs(6)}
	bridge, err := w.world.Docker.NetworkInspect(t.Context(), dockerapi.NetworkBridge, dockerapi.NetworkInspectOptions{})
	must(t, err)
	w.outside = outside{address: bridge.IPAM.Config[0].Gateway, subnet: bridge.IPAM.Config[0].Subnet}
	prices, err := filepath.Abs("../guides/costs/prices.json")
	must(t, err)
	w.Reconciler = w.world.ReconcilerOf(func(c *reconciler.Config) {
		c.Docker.Gateway.Hosts, c.DockerPriceBook = w.outside.hosts(), prices
	})
	w.service, err = client.New(client.Config{URL: w.URL, Token: w.Token})
	must(t, err)
	w.model, w.relay = startModel(t, w.outside), startRelay(t, w.outside)
	w.prepare(example)
	return w
}

// prepare copies the example to Terraform's directory, and sets its variables.
func (w *world) prepare(example string) {
	w.Helper()
	path, err := program()
	must(w.T, err)
	from, err := base()
	must(w.T, err)
	w.terraform = providertest.NewMirroredCLI(w.T, path)
	for _, dir := range []string{example, "image"} {
		must(w.T, os.CopyFS(filepath.Join(w.terraform.Dir, dir), os.DirFS(dir)))
	}
	// Concurrent tests have different images.
	main := filepath.Join(example, "main.tf")
	image := "sandbox-environments/" + example
	text := strings.Replace(w.terraform.Read(main), `"`+image+`"`, `"`+image+"-"+w.name+`"`, 1)
	w.terraform.Write(main, text)
	w.terraform.Dir = filepath.Join(w.terraform.Dir, example)
	w.terraform.Env = append(w.terraform.Env, "SANDBOX_RECONCILER_URL="+w.URL, "SANDBOX_RECONCILER_TOKEN="+w.Token)
	w.variables = map[string]any{
		"name": w.name, "base": from, "llm_api_key": w.model.key, "private_cidrs": []string{w.outside.subnet},
		"llm":   map[string]string{"upstream": w.model.url},
		"relay": map[string]string{"url": w.relay.url, "host": w.relay.host, "did": w.relay.did},
	}
}

// apply applies the example until the end of the test, and makes each agent listen to the relay in its sandbox.
func (w *world) apply(agents ...string) {
	w.Helper()
	w.lease(agents...)
	for _, agent := range agents {
		w.enroll(agent)
	}
}

// lease applies the example. Its agents do not listen to the relay yet.
func (w *world) lease(agents ...string) {
	w.Helper()
	w.variables["agents"] = agents
	for name, value := range w.variables {
		text, isText := value.(string)
		if !isText {
			encoded, err := json.Marshal(value)
			must(w.T, err)
			text = string(encoded)
		}
		w.terraform.Env = append(w.terraform.Env, "TF_VAR_"+name+"="+text)
	}
	w.terraform.Run("init", "-no-color")
	w.Cleanup(w.forceDestroy)
	w.terraform.Run("apply", "-auto-approve", "-input=false", "-no-color")
	if p := w.terraform.Plan(); len(p.Changes) > 0 {
		w.Errorf("the second plan is %v", p.Changes)
	}
}

// enroll gives the agent's sandbox the key of its DID. Then the watcher in the sandbox listens to the relay.
func (w *world) enroll(agent string) {
	w.Helper()
	if said := w.python("", "enroll.py", agent, w.name, w.key(agent)); !strings.Contains(said, "Connected to relay as "+agent) {
		w.Errorf("the watcher of %s says %q", agent, said)
	}
}

// key generates a key for an agent's DID, registers it at the relay, and returns its file.
func (w *world) key(agent string) string {
	w.Helper()
	key := filepath.Join(w.TempDir(), "key.pem")
	must(w.T, os.WriteFile(key, w.relay.register(w.T, agent), 0o600))
	return key
}

// destroy destroys the example, and checks that nothing is left.
func (w *world) destroy() {
	w.Helper()
	w.terraform.Run("destroy", "-auto-approve", "-input=false", "-no-color")
}

// forceDestroy removes the objects of a failed test.
func (w *world) forceDestroy() {
	if !w.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := w.service.DeleteEnvironment(ctx, sandbox.DeleteEnvironment{ID: w.name, Force: true}); err != nil &&
		sandbox.CodeOf(err) != sandbox.NotFound {
		w.Errorf("remove what is left of %s: %v", w.name, err)
	}
}

// python runs a program of host, which must succeed, and returns its output.
func (w *world) python(stdin, script string, args ...string) string {
	w.Helper()
	out, err := w.tryPython(stdin, script, args...)
	if err != nil {
		w.Fatal(err)
	}
	return out
}

func (w *world) tryPython(stdin, script string, args ...string) (string, error) {
	w.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(w.Context(), "python3", append([]string{"-B", filepath.Join("host", script)}, args...)...)
	cmd.Env = append(os.Environ(), "SANDBOX_RECONCILER_URL="+w.URL, "SANDBOX_RECONCILER_TOKEN="+w.Token,
		"GIT_TOKEN="+gitToken)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %v: %w: %s", script, args, err, stderr.String())
	}
	return stdout.String(), nil
}

// turn returns the output of the host's program for an agent's turn. It checks that no session stays open.
func (w *world) turn(agent string, state any, args ...string) map[string]any {
	w.Helper()
	text, err := json.Marshal(state)
	must(w.T, err)
	out := w.python(string(text), "turn.py", append([]string{agent, w.name, "1", "--timeout", patience}, args...)...)
	var action map[string]any
	if err := json.Unmarshal([]byte(out), &action); err != nil {
		w.Fatalf("turn.py prints %q: %v", out, err)
	}
	open, err := w.service.ListSessions(w.Context(),
		sandbox.SessionFilter{LeaseID: w.leaseID(agent), State: sandbox.SessionOpen})
	must(w.T, err)
	if len(open) > 0 {
		w.Errorf("%d sessions of %s are left open", len(open), agent)
	}
	return action
}

func (w *world) leaseID(agent string) string { return sandbox.LeaseID(agent, w.name) }

// tell announces a turn to an agent on the relay, and returns the record that the agent then creates.
func (w *world) tell(agent, collection string, turn int, state map[string]any) created {
	w.Helper()
	var told time.Time
	var found created
	w.until(fmt.Sprintf("%s posts the record of turn %d", agent, turn), func() bool {
		if time.Since(told) > 10*time.Second { // repeat it after a lost connection: the agent takes a turn only once
			w.relay.tell(w.T, agent, collection, map[string]any{"environment": w.name, "turn": turn, "state": state})
			told = time.Now()
		}
		for _, c := range w.relay.posted(agent) {
			if c.Record.Turn == turn {
				found = c
			}
		}
		return found.Key != ""
	})
	if want := fmt.Sprintf("%s.%d", w.name, turn); found.Key != want || found.Record.Environment != w.name ||
		found.Record.Type != found.Collection {
		w.Errorf("the record is %+v, and its key must be %s", found, want)
	}
	return found
}

// until waits for a condition, for two minutes at most.
func (w *world) until(what string, is func() bool) {
	w.Helper()
	if !testwait.Poll(2*time.Minute, is) {
		w.Fatalf("not within two minutes: %s\n%s", what, w.logs())
	}
}

// logs returns the logs of the watchers in the environment's sandboxes.
func (w *world) logs() (all string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	leases, err := w.service.ListLeases(ctx, sandbox.LeaseFilter{EnvironmentID: w.name, Status: sandbox.LeaseActive})
	for _, l := range leases {
		ref := sandbox.ProcessRef{LeaseRef: sandbox.LeaseRef{ID: l.ID}, Name: "relay"}
		log, logErr := w.service.ReadProcess(ctx, sandbox.LogRequest{ProcessRef: ref})
		if err = errors.Join(err, logErr); logErr == nil {
			var text bytes.Buffer
			_, readErr := text.ReadFrom(log)
			err = errors.Join(err, readErr, log.Close())
			all += l.ID + ":\n" + text.String()
		}
	}
	if err != nil {
		all += err.Error()
	}
	return all
}

// send posts a signed condition, as a game server does. It waits until the sandboxes that the condition ends are gone:
// the agent's, or without an agent all of the environment.
func (w *world) send(condition, agent string) {
	w.Helper()
	path, err := program()
	must(w.T, err)
	args := []string{
		"send", "--url", w.URL, "--webhook-secret-file", w.SecretFile, "--environment", w.name,
		"--type", condition, "--reason", "told by the test",
	}
	if agent != "" {
		args = append(args, "--agent", agent)
	}
	if out, err := exec.CommandContext(w.Context(), path, args...).CombinedOutput(); err != nil {
		w.Fatalf("%v: %v\n%s", args, err, out)
	}
	leases, err := w.service.ListLeases(w.Context(), sandbox.LeaseFilter{EnvironmentID: w.name, AgentDID: agent})
	must(w.T, err)
	if len(leases) == 0 {
		w.Fatalf("%s has no lease of %q", w.name, agent)
	}
	for _, l := range leases {
		w.until("the lease "+l.ID+" is destroyed", func() bool {
			l, err := w.service.GetLease(w.Context(), l.ID)
			must(w.T, err)
			return l.Status == sandbox.LeaseDestroyed
		})
	}
}

// shell returns the output of a shell line in an agent's sandbox.
func (w *world) shell(agent, line string) string {
	w.Helper()
	r, err := w.service.Exec(w.Context(), sandbox.LeaseRef{ID: w.leaseID(agent)},
		sandbox.ExecRequest{Command: []string{"sh", "-c", line}})
	must(w.T, err)
	return string(r.Stdout) + string(r.Stderr)
}

// running counts the containers of the environment's sandboxes.
func (w *world) running() int { return len(w.world.Containers(w.name)) }
