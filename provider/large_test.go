package provider_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
)

// A plan of thousands of leases sends the reconciler at most 50 requests. The test also prints the time of the plan
// beside two others with as many resources: of a provider that does nothing, and of Terraform itself.
func TestAccThousandsOfLeases(t *testing.T) {
	if os.Getenv("SANDBOX_TEST_LONG") == "" {
		t.Skip("applies 4,500 leases: set SANDBOX_TEST_LONG=1")
	}
	program, err := providertest.BuildIdle(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []struct{ environments, leases int }{{1, 500}, {1, 2000}, {20, 2000}} {
		leases := n.leases
		t.Run(fmt.Sprintf("%d in %d", leases, n.environments), func(t *testing.T) {
			r, _ := serveInMemory(t)
			configuration, seen := counted(t, r)
			ours := terraform(t, configuration+games(n.environments, leases/n.environments))
			theirs := terraform(t, fmt.Sprintf("resource \"terraform_data\" \"member\" {\n  count = %d\n}\n", leases))
			idle := providertest.NewCLI(t, program, fmt.Sprintf(`
resource "bare_lease" "member" {
  count          = %d
  provider       = sandbox
  agent_did      = "did:plc:member-${count.index}"
  environment_id = "game"
}
`, leases))
			for _, tf := range []*providertest.CLI{ours, idle, theirs} {
				tf.Run("apply", "-auto-approve", "-input=false", "-parallelism=50")
			}
			plan, least, own := time.Hour, time.Hour, time.Hour
			for range 3 {
				seen.take()
				plan = min(plan, nothingPlanned(t, ours))
				if requests := len(seen.take()); requests > 50 {
					t.Errorf("a plan of %d leases made %d requests", leases, requests)
				} else {
					t.Logf("a plan of %d leases made %d requests", leases, requests)
				}
				least, own = min(least, nothingPlanned(t, idle)), min(own, nothingPlanned(t, theirs))
			}
			for what, other := range map[string]time.Duration{"a provider that does nothing": least, "terraform_data": own} {
				t.Logf("a plan of %d leases took %s, of as many of %s %s: %.2f", leases, plan.Round(time.Millisecond), what,
					other.Round(time.Millisecond), plan.Seconds()/other.Seconds())
			}
			ours.Run("destroy", "-auto-approve", "-input=false", "-parallelism=50")
		})
	}
}

// nothingPlanned runs a plan, which must change nothing, and returns its duration.
func nothingPlanned(t *testing.T, tf *providertest.CLI) time.Duration {
	t.Helper()
	began := time.Now()
	said := tf.Run("plan", "-input=false", "-no-color")
	if !strings.Contains(said, "No changes.") {
		t.Fatalf("the plan says\n%s", said)
	}
	return time.Since(began)
}

// serveInMemory returns a reconciler's API with an in-memory backend, and the service behind it.
func serveInMemory(t *testing.T) (providertest.Reconciler, service.Service) {
	t.Helper()
	_, _, engine, _ := newInMemory(t)
	text := access.NewToken()
	token, err := access.MakeToken("terraform", text)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := webhook.ParseSecret(webhook.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	handler, err := api.New(api.Config{Service: engine, Tokens: []access.Token{token}, Secrets: webhook.Secrets{secret}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return providertest.Reconciler{
		URL: server.URL, Token: text,
		Configuration: fmt.Sprintf("provider \"sandbox\" {\n  reconciler = {\n    url   = %q\n    token = %q\n  }\n}\n",
			server.URL, text),
	}, engine
}
