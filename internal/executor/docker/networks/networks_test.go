package networks

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// answers are an engine's answers to requests about networks.
type answers struct {
	list    string // JSON
	create  http.HandlerFunc
	creates atomic.Int64
}

// networks returns the networks of an engine with these answers. Its pool has one subnet.
func (a *answers) networks(t *testing.T) *Networks {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/networks"):
			_, _ = fmt.Fprint(w, a.list)
		case strings.HasSuffix(r.URL.Path, "/networks/create"):
			a.creates.Add(1)
			a.create(w, r)
		}
	}))
	t.Cleanup(s.Close)
	api, err := dockerapi.Connect("tcp://"+s.Listener.Addr().String(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() }) // closes idle connections only
	return New(engine.New(api, engine.Config{}), netip.MustParsePrefix("10.213.0.0/28"))
}

var spec = driver.SandboxSpec{Handle: driver.Handle{
	LedgerID: "aaaaaaaaaaaaaaaa", EnvironmentID: "e", SandboxID: "bbbbbbbbbbbbbbbb", Instance: "engine",
}}

func refuse(status int, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"message":%q}`, message)
	}
}

func TestAPoolThatIsUsedUpSaysWhy(t *testing.T) {
	t.Parallel()
	const reason = "Pool overlaps with other one on this address space"
	for name, row := range map[string]struct {
		list, ends string
	}{
		"by listed networks": {`[{"Name":"other","IPAM":{"Config":[{"Subnet":"10.213.0.0/16"}]}}]`, "docker.network_pool of the provider)"},
		"by what is not":     {`[]`, reason},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &answers{list: row.list, create: refuse(http.StatusForbidden, reason)}
			_, err := a.networks(t).Open(t.Context(), spec)
			if sandbox.CodeOf(err) != sandbox.CapacityExceeded || !strings.HasSuffix(err.Error(), row.ends) {
				t.Errorf("%s: %v", sandbox.CodeOf(err), err)
			}
		})
	}
}

// TestANetworkThatAnotherCallerCreatesIsAwaited uses a name that is taken but that no list has.
func TestANetworkThatAnotherCallerCreatesIsAwaited(t *testing.T) {
	t.Parallel()
	a := &answers{list: "[]", create: refuse(http.StatusConflict, "network with name exists already")}
	ns := a.networks(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*createdElsewherePause)
	defer cancel()
	_, err := ns.Open(ctx, spec)
	if sandbox.CodeOf(err) != sandbox.Unavailable || !strings.Contains(fmt.Sprint(err), "another caller") {
		t.Errorf("%s: %v", sandbox.CodeOf(err), err)
	}
	if n := a.creates.Load(); n > 5 {
		t.Errorf("it asked %d times within %s", n, 4*createdElsewherePause)
	}

	var tries atomic.Int64
	b := &answers{list: "[]", create: func(w http.ResponseWriter, r *http.Request) {
		if tries.Add(1) <= 2 {
			a.create(w, r)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprint(w, `{"Id":"x"}`)
	}}
	began := time.Now()
	if _, err := b.networks(t).Open(t.Context(), spec); err != nil || time.Since(began) < 2*createdElsewherePause {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
}
