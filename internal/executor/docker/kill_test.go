package docker_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/faulttest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestAKillRemovesTheVolumesWhileAGatewayOrRelayIsDown: on a full disk neither starts, and the volumes may fill it.
func TestAKillRemovesTheVolumesWhileAGatewayOrRelayIsDown(t *testing.T) {
	t.Parallel()
	for name, suffix := range map[string]string{"gateway": "-env-docker-1-gateway", "relay": "-relay"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			killsWithout(t, suffix)
		})
	}
}

// killsWithout stops a container of the ledger and makes the engine refuse to start it.
func killsWithout(t *testing.T, suffix string) {
	proxy := dockertest.NewProxy(t)
	r := newRestrictedOf(t, func(r *restricted) { r.config.Host = proxy.Host() })
	spec := r.spec()
	spec.Companions = sandbox.Companions{"db": {Image: r.image, Resources: spec.Resources}}
	must(t, r.x.Spawn(t.Context(), spec))
	grace, down := 0, "sandbox-"+r.ref.LedgerID+suffix
	must(t, r.api.ContainerStop(t.Context(), down, dockerapi.StopOptions{Timeout: &grace}))
	proxy.Set(func(rw http.ResponseWriter, req *http.Request, pass http.HandlerFunc) {
		if strings.HasSuffix(req.URL.Path, "/"+down+"/start") {
			faulttest.Error500(rw, req, pass)
			return
		}
		pass(rw, req)
	})

	err := r.x.Kill(t.Context(), spec.Handle)
	wantCode(t, err, sandbox.Failed)
	for _, left := range objectsOfLedger(t, r.ref.LedgerID) {
		if strings.Contains(left, spec.SandboxID) {
			t.Errorf("left while %s is down: %s", down, left)
		}
	}

	proxy.Set(nil)
	must(t, r.x.Kill(t.Context(), spec.Handle))
	all, err := r.x.Dependents(t.Context(), r.ref.LedgerID)
	must(t, err)
	for _, d := range all {
		if d.SandboxID == spec.SandboxID {
			t.Errorf("left in the end: %s %s", d.Kind, d.Name)
		}
	}
	if !slices.ContainsFunc(all, func(d driver.Dependent) bool { return d.Kind == driver.DependentGateway }) {
		t.Errorf("the environment has only %v", all)
	}
}
