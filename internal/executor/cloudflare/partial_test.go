package cloudflare_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// stub is an account whose Workers each list one sandbox, and can fail.
type stub struct {
	cloudflare.Deployer
	ledger string

	mu    sync.Mutex // guards what follows
	sites []cloudflare.Site
	state map[string]sandbox.State // by environment; "" fails
}

const stubLedger = "ledgerofpartial2"

func newStub(t *testing.T, environments ...string) *stub {
	s := &stub{ledger: stubLedger, state: map[string]sandbox.State{}}
	for _, id := range environments {
		s.set(id, sandbox.StateRunning)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			state := s.state[id]
			s.mu.Unlock()
			if state == "" {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			if state == deleted {
				http.Error(w, "<html>There is nothing here yet</html>", http.StatusNotFound)
				return
			}
			if strings.HasSuffix(r.URL.Path, "/networks") {
				s.listNetworks(w, id, state)
				return
			}
			fmt.Fprintf(w, `{"sandboxes":[{"id":"of-%s","view":{"settings":{"environment_id":%q},"state":%q}}],"more":false}`,
				id, id, state)
		}))
		t.Cleanup(server.Close)
		s.sites = append(s.sites, cloudflare.Site{Name: cloudflare.DeploymentName(s.ledger, id), URL: server.URL})
	}
	return s
}

// deleted is the state of a sandbox whose Worker was deleted: Cloudflare itself answers at its address.
const deleted = "deleted"

// older is the state of a sandbox whose Worker does not support restricted networks.
const older = "older"

func (s *stub) listNetworks(w http.ResponseWriter, id string, state sandbox.State) {
	if state == older {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"code":"invalid","reason":"","message":"the path names no sandbox"}`)
		return
	}
	fmt.Fprintf(w, `{"environments":[%q]}`, id)
}

func (s *stub) set(environment string, state sandbox.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state[environment] = state
}

func (s *stub) Account(context.Context) (string, error) { return "account", nil }

func (s *stub) Doubt(string) {}

// existing returns the deployments that were not deleted.
func (s *stub) existing() []cloudflare.Site {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.sites), func(site cloudflare.Site) bool {
		for environment, state := range s.state {
			if state == deleted && site.Name == cloudflare.DeploymentName(s.ledger, environment) {
				return true
			}
		}
		return false
	})
}

func (s *stub) List(context.Context, string) ([]cloudflare.Site, error) { return s.existing(), nil }

func (s *stub) Find(_ context.Context, name string) (cloudflare.Site, error) {
	for _, site := range s.existing() {
		if site.Name == name {
			return site, nil
		}
	}
	return cloudflare.Site{}, sandbox.Errorf(sandbox.NotFound, "there is no deployment %s", name)
}

func stubExecutor(t *testing.T, d cloudflare.Deployer) *cloudflare.Executor {
	t.Helper()
	return stubExecutorAt(t, d, time.Now)
}

func stubExecutorAt(t *testing.T, d cloudflare.Deployer, now func() time.Time) *cloudflare.Executor {
	t.Helper()
	x, err := cloudflare.New(cloudflare.Config{
		Deployer: d, MasterKey: "the key of keys", Poll: time.Millisecond, Now: now,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() }) // it only closes idle connections
	return x
}

func TestAWorkerThatFailsHidesNoOther(t *testing.T) {
	d := newStub(t, "well", "bad")
	x := stubExecutor(t, d)
	d.set("bad", "")
	list, err := x.List(t.Context(), stubLedger)
	var partial *sandbox.PartialError
	if !errors.As(err, &partial) || partial.Of("bad") == nil || partial.Of("well") != nil ||
		sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("the list returns %v", err)
	}
	if len(list) != 1 || list[0].SandboxID != "of-well" {
		t.Errorf("listed are %+v", list)
	}
}

func TestAWorkerThatFailsHidesNoOthersLog(t *testing.T) {
	d := newStub(t, "well", "bad", "former")
	x := stubExecutor(t, d)
	d.set("bad", "")
	d.set("former", older)
	want := []driver.EnvironmentRef{{LedgerID: stubLedger, EnvironmentID: "well", Instance: "account"}}
	refs, err := x.EgressLogs(t.Context(), stubLedger)
	if sandbox.CodeOf(err) != sandbox.Unavailable || !slices.Equal(refs, want) {
		t.Errorf("the logs are those of %+v, %v", refs, err)
	}
	d.set("bad", sandbox.StateRunning)
	refs, err = x.EgressLogs(t.Context(), stubLedger)
	if want = append(want,
		driver.EnvironmentRef{LedgerID: stubLedger, EnvironmentID: "bad", Instance: "account"}); err != nil ||
		!slices.Equal(refs, want) {
		t.Errorf("once it answers, the logs are those of %+v, %v", refs, err)
	}
}

// TestAWorkerThatIsDeletedElsewhereIsForgotten: its address would fail for ever.
func TestAWorkerThatIsDeletedElsewhereIsForgotten(t *testing.T) {
	d := newStub(t, "well", "bad")
	now := time.Now()
	x := stubExecutorAt(t, d, func() time.Time { return now })
	of := func(environment string) driver.Handle {
		id := "of-" + environment
		return driver.Handle{LedgerID: stubLedger, EnvironmentID: environment, Instance: "account", SandboxID: id}
	}
	for _, environment := range []string{"well", "bad"} {
		if _, err := x.Inspect(t.Context(), of(environment)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := x.List(t.Context(), stubLedger); err != nil {
		t.Fatal(err)
	}
	d.set("bad", deleted)
	if _, err := x.List(t.Context(), stubLedger); err == nil { // from the cached list of deployments
		t.Error("the deleted Worker is listed")
	}
	now = now.Add(2 * time.Minute)
	if list, err := x.List(t.Context(), stubLedger); err != nil || len(list) != 1 {
		t.Errorf("a new list has %+v, %v", list, err)
	}
	if err := x.Kill(t.Context(), of("bad")); err != nil {
		t.Errorf("the kill of its sandbox: %v", err)
	}
	if _, err := x.Inspect(t.Context(), of("bad")); sandbox.CodeOf(err) != sandbox.NotFound {
		t.Errorf("its sandbox: %v", err)
	}
	if _, err := x.Inspect(t.Context(), of("well")); err != nil {
		t.Errorf("the other sandbox: %v", err)
	}
}

func TestAWorkerThatFailsEndsNoWatch(t *testing.T) {
	d := newStub(t, "well", "bad")
	x := stubExecutor(t, d)
	ctx, cancel := context.WithCancel(t.Context())
	ready, changed, done := make(chan struct{}), make(chan string, 100), make(chan error, 1)
	go func() {
		done <- x.Watch(ctx, stubLedger, func() { close(ready) }, func(id string) { changed <- id })
	}()
	defer func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the watch ended with %v", err)
		}
	}()
	<-ready
	want := func(ids ...string) {
		t.Helper()
		for len(ids) > 0 {
			select {
			case id := <-changed:
				i := slices.Index(ids, id)
				if i < 0 {
					t.Fatalf("a change of %s is told, want one of %q", id, ids)
				}
				ids = slices.Delete(ids, i, i+1)
			case <-time.After(patience):
				t.Fatalf("no change of %q is told", ids)
			}
		}
	}
	d.set("bad", "")
	d.set("well", sandbox.StateStopped)
	want("of-well") // and not the failing one: it is unknown, not gone
	d.set("well", sandbox.StateRunning)
	want("of-well")
	d.set("bad", sandbox.StateStopped)
	want("of-bad")
}
