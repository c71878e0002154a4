package deploy_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/localapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	account = "0123456789abcdef0123456789abcdef"
	token   = "the-token-of-this-test"
	key     = sandbox.Secret("the-signing-key-of-this-test")
)

// world is an account with a deployer.
type world struct {
	*testing.T
	api      *localapi.Server
	url      string
	deployer *deploy.Deployer
	logged   *buffer

	mu    sync.Mutex // guards everything that follows
	asked []string   // method and path of each request
	fault func(n int, r *http.Request) localapi.Fault
}

// buffer can be written by several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, logged: &buffer{}}
	w.api = localapi.New(localapi.Config{Token: token, Fault: w.ask})
	server := httptest.NewServer(w.api)
	// The test breaks connections on purpose: the server would log each.
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(server.Close)
	w.url = server.URL + "/client/v4"
	w.deployer = w.newDeployer(deploy.Config{})
	return w
}

func (w *world) newDeployer(cfg deploy.Config) *deploy.Deployer {
	w.Helper()
	cfg.AccountID, cfg.BaseURL, cfg.Attempts, cfg.WaitMin, cfg.WaitMax = account, w.url, 2,
		time.Millisecond, 2*time.Millisecond
	cfg.Calls = cmp.Or(cfg.Calls, 1_000_000) // deployments here do not wait
	cfg.Guest = []byte("a guest")            // packing the built one takes long
	if cfg.Token == "" {
		cfg.Token = token
	}
	cfg.Logger = slog.New(slog.NewTextHandler(w.logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	d, err := deploy.New(cfg)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := d.Close(); err != nil {
			w.Error(err)
		}
	})
	return d
}

// ask records a request, and returns its fault.
func (w *world) ask(r *http.Request) localapi.Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, r.Method+" "+strings.TrimPrefix(r.URL.Path, "/client/v4/accounts/"+account))
	if w.fault == nil {
		return localapi.None
	}
	return w.fault(len(w.asked)-1, r)
}

// forget clears the recorded requests, and sets the faults of later ones; nil means no faults.
func (w *world) forget(fault func(n int, r *http.Request) localapi.Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked, w.fault = nil, fault
}

// changes returns the recorded requests for changes.
func (w *world) changes() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, request := range w.asked {
		if !strings.HasPrefix(request, http.MethodGet) {
			all = append(all, request)
		}
	}
	return all
}

func (w *world) requests() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.asked)
}

func wanted() cloudflare.Deployment {
	lite, _ := sandbox.ResourcesOf("lite")
	return cloudflare.Deployment{
		Name: cloudflare.DeploymentName("ledgerofdeploy22", "catan-7"), Script: []byte("export default {} // first"),
		Image:     "registry.cloudflare.com/" + account + "/game@sha256:" + strings.Repeat("0a", 32),
		Resources: lite, MaxInstances: 3, SigningKey: key, Variables: map[string]string{"FLAVOUR": "plain"},
	}
}

func (w *world) deploy(d cloudflare.Deployment) cloudflare.Site {
	w.Helper()
	site, err := w.deployer.Deploy(w.Context(), d)
	w.must(err)
	return site
}

func (w *world) find(name string) cloudflare.Site {
	w.Helper()
	site, err := w.deployer.Find(w.Context(), name)
	w.must(err)
	return site
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) wantCode(err error, code sandbox.Code) {
	w.Helper()
	if sandbox.CodeOf(err) != code {
		w.Fatalf("error has code %q, want %q: %v", sandbox.CodeOf(err), code, err)
	}
}

// wantDeployed checks that each part of a deployment exists once and matches.
func (w *world) wantDeployed(d cloudflare.Deployment) {
	w.Helper()
	if differences := d.Differences(w.find(d.Name)); len(differences) > 0 {
		w.Errorf("the site differs from the deployment: %v", differences)
	}
	if got, want := w.api.Holding(),
		map[string]int{"workers": 1, "applications": 1, "databases": 1, "buckets": 1}; !maps.Equal(got, want) {
		w.Errorf("the account has %v, want %v", got, want)
	}
	w.wantRolledOut(d)
}

// wantRolledOut checks that the last rollout of a changed application has the wanted settings.
func (w *world) wantRolledOut(d cloudflare.Deployment) {
	w.Helper()
	var all []struct {
		ID      string
		Version int
	}
	w.get("/containers/applications", &all)
	for _, a := range all {
		var rollouts []struct {
			Target struct{ Image string } `json:"target_configuration"`
		}
		w.get("/containers/applications/"+a.ID+"/rollouts", &rollouts)
		if a.Version > 1 && (len(rollouts) == 0 || rollouts[len(rollouts)-1].Target.Image != d.Image) {
			w.Errorf("application %s was changed, and its rollouts are %v", a.ID, rollouts)
		}
	}
}

func (w *world) wantNothing() {
	w.Helper()
	if left := w.api.Holding(); len(left) > 0 {
		w.Errorf("the account still has %v", left)
	}
}

// request sends a request behind the deployer's back.
func (w *world) request(method, path, body string) []byte {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), method, w.url+"/accounts/"+account+path, strings.NewReader(body))
	w.must(err)
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(r)
	w.must(err)
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	w.must(err)
	if answer.StatusCode >= 300 {
		w.Fatalf("%s %s: the answer is %s: %s", method, path, answer.Status, content)
	}
	return content
}

// get reads a result of the API.
func (w *world) get(path string, into any) {
	w.Helper()
	envelope := struct{ Result any }{into}
	w.must(json.Unmarshal(w.request(http.MethodGet, path, ""), &envelope))
}
