package docker_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// reached lists the events of attempts as "type host reason", and the received bytes by host.
func reached(t *testing.T, e *leasing.Service) (list []string, received map[string]int64) {
	t.Helper()
	events, err := e.ListEvents(t.Context(), sandbox.EventFilter{Type: "egress.*"})
	must(t, err)
	received = make(map[string]int64)
	for _, ev := range events {
		var a sandbox.EgressAttempt
		must(t, json.Unmarshal(ev.Data, &a))
		if ev.LeaseID == "" || a.AgentDID != "did:plc:ann" {
			t.Errorf("event %+v names no lease or another agent: %s", ev, ev.Data)
		}
		received[a.Host] += a.ReceivedBytes
		if ev.Type != sandbox.EventEgressClosed { // it ends an attempt in the list
			list = append(list, fmt.Sprintf("%s %s:%d %s", ev.Type, a.Host, a.Port, a.Reason))
		}
	}
	return list, received
}

func TestWhatASandboxReachesIsInTheLedgerWhateverDies(t *testing.T) {
	t.Parallel()
	r, path := newRestricted(t), filepath.Join(t.TempDir(), "ledger.db")
	e, end := r.engineOn(t, path)
	env := r.environment()
	env.Type, env.Network, env.Egress, env.Resources = sandbox.TypeCustom, sandbox.NetworkRestricted, &r.egress,
		sandbox.DefaultResources
	_, err := e.PutEnvironment(t.Context(),
		sandbox.PutEnvironment{ID: r.ref.EnvironmentID, Owner: "test", EnvironmentSpec: env})
	must(t, err)
	a, err := e.Acquire(t.Context(),
		sandbox.Acquire{AgentDID: "did:plc:ann", EnvironmentID: r.ref.EnvironmentID, Owner: "test"})
	must(t, err)
	h := r.world.spec().Handle
	h.SandboxID = a.Lease.SandboxID
	collected := func(want []string) {
		t.Helper()
		eventually(t, fmt.Sprintf("%q is recorded", want), func() bool {
			must(t, e.CollectEgress(t.Context(), sandbox.Docker))
			got, _ := reached(t, e)
			return len(got) >= len(want)
		})
		if got, _ := reached(t, e); !slices.Equal(got, want) {
			t.Fatalf("the ledger has %q, want %q", got, want)
		}
	}

	r.probe(t, h, "get", "https://good.test/")
	want := []string{"egress.allowed good.test:443 "}
	collected(want)
	eventually(t, "the bytes are recorded", func() bool {
		must(t, e.CollectEgress(t.Context(), sandbox.Docker))
		_, received := reached(t, e)
		return received["good.test"] > 500 // a hello and its certificate
	})

	// There is no reader for a while, the reconciler ends, and the gateway dies and restarts.
	r.probe(t, h, "get", "https://evil.test/")
	r.probe(t, h, "get", "http://private.good.test/")
	end()
	must(t, r.api.ContainerKill(t.Context(), r.gateway(), "SIGKILL"))
	e, end = r.engineOn(t, path)
	defer func() { end() }()
	wake(t, r.x, h) // it restores the gateway
	r.probe(t, h, "get", "https://other.test/")
	want = append(want, "egress.denied evil.test:443 host_not_allowed",
		"egress.denied private.good.test:80 address_refused", "egress.denied other.test:443 host_not_allowed")
	collected(want)
	must(t, e.CollectEgress(t.Context(), sandbox.Docker))
	collected(want)
	if err := e.CollectEgress(t.Context(), sandbox.Cloudflare); err == nil {
		t.Error("a backend that is not there has been read")
	}
}
