package provider_test

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The summary for a pull request, from a real plan after real events.
func TestAccPlanSummary(t *testing.T) {
	t.Parallel()
	for _, over := range []string{"embedded", "reconciler"} {
		t.Run(over, func(t *testing.T) {
			t.Parallel()
			w := providertest.New(t)
			if over == "reconciler" {
				r, _ := priced(t, w)
				summarized(t, w, r.Configuration)
				return
			}
			summarized(t, w, fmt.Sprintf("provider \"sandbox\" {\n  ledger = %q\n  docker = {\n    price_book = %q\n  }\n}\n",
				w.LedgerURL, w.WriteFile("prices.json", ourPrices)))
		})
	}
}

func summarized(t *testing.T, w *providertest.World, provider string) {
	configuration := func(leases int) string {
		usage := fmt.Sprintf("\n  expected_usage = {\n    leases        = %d\n    hours_per_day = 4\n  }\n", leases)
		game := strings.Replace(environment(w), "\n  network = {", usage+"  network = {", 1)
		return provider + game + lease("dead", "") +
			lease("removed", "") + lease("changed", "") + lease("again", `on_expiry = "recreate"`) +
			fmt.Sprintf("data \"sandbox_drift\" \"open\" {\n  environment_id = %q\n  status = \"open\"\n}\n", w.Name)
	}
	tf := terraform(t, configuration(8))
	tf.Run("apply", "-auto-approve", "-input=false")
	if got, _ := summary(t, tf); strings.Contains(got, "### Drift") || strings.Contains(got, "### Changes") {
		t.Errorf("of a plan without changes it says:\n%s", got)
	}
	happen(t, w)
	// Without this, the data source may be read first.
	_, err := w.Service().ObserveLease(t.Context(), sandbox.LeaseID("did:plc:changed", w.Name))
	w.Must(err)
	tf.Write("main.tf", configuration(16))
	got, _ := summary(t, tf)
	for _, line := range []string{
		"\\| `sandbox_environment.game` \\| \\$(\\d+\\.\\d\\d) \\| \\$\\d+\\.\\d\\d \\| \\+\\$\\d+\\.\\d\\d \\|",
		"\\| `sandbox_lease.removed` \\| vanished \\| create \\|",
		"\\| `sandbox_lease.changed` \\| `memory_mb`: expected `512`, observed `96` \\| nothing is planned \\|",
		"\\| `sandbox_lease.dead` \\| `condition` \\| `agent.death.*` \\| nothing is planned \\|",
		"\\| `sandbox_lease.again` \\| `condition` \\| `agent.death.*` \\| update \\|",
		"\\| `did:plc:changed::" + w.Name + "` \\| `changed` `memory_mb` \\| `512` \\| `96` \\| `20.*Z` \\|",
		"\\| `sandbox_environment.game` \\| update \\|",
	} {
		if !regexp.MustCompile("(?m)^" + line + "$").MatchString(got) {
			t.Errorf("no line is like %s in\n%s", line, got)
		}
	}
	spendBudget(t, w) // a reconciler soon ends the leases
	_, said := summary(t, tf)
	if warning := "All Of The Budget Of Environment " + w.Name + " Is Spent"; !strings.Contains(said, warning) {
		t.Errorf("the plan does not say %q:\n%s", warning, said)
	}
	tf.Run("destroy", "-auto-approve", "-input=false")
}

// spendBudget gives the environment a budget that is already spent.
func spendBudget(t *testing.T, w *providertest.World) {
	t.Helper()
	service := w.Service()
	env, err := service.GetEnvironment(t.Context(), w.Name)
	w.Must(err)
	env.Budget = &sandbox.Budget{Monthly: 1}
	_, err = service.PutEnvironment(t.Context(),
		sandbox.PutEnvironment{ID: env.ID, Owner: env.Owner, EnvironmentSpec: env.EnvironmentSpec})
	w.Must(err)
}

// summary plans, and pipes the plan through the program. It also returns the plan's output.
func summary(t *testing.T, tf *providertest.CLI) (markdown, said string) {
	t.Helper()
	said = tf.Run("plan", "-out=planned", "-input=false")
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, "plan-summary")
	cmd.Stdin = strings.NewReader(tf.Run("show", "-json", "planned"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("plan-summary: %v\n%s", err, out)
	}
	return string(out), said
}
