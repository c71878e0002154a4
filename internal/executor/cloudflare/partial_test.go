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

func (s *stub) List(context.Context, string) ([]cloudflare.Site, error) { return s.sites, nil }

func stubExecutor(t *testing.T, d cloudflare.Deployer) *cloudflare.Executor {
	t.Helper()
	x, err := cloudflare.New(cloudflare.Config{Deployer: d, MasterKey: "the key of keys", Poll: time.Millisecond})
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
