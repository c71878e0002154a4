package provider_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
)

const ourPrices = `{"name": "ours", "source": "the test", "as_of": "2026-11-01",
	"memory_gib_second_usd": "0.0000025", "cpu_second_usd": "0.00002", "disk_gb_second_usd": "0"}`

// priced returns a reconciler that charges by a price book, and the path of the book.
func priced(t *testing.T, w *providertest.World) (r providertest.Reconciler, book string) {
	t.Helper()
	book = w.WriteFile("prices.json", ourPrices)
	return w.ReconcilerOf(func(c *reconciler.Config) { c.DockerPriceBook = book }), book
}

// expecting is an environment with an estimate, and more.
func expecting(w *providertest.World, more string) string {
	return strings.Replace(environment(w), "\n  network = {",
		"\n  expected_usage = {\n    leases        = 8\n    hours_per_day = 4\n  }\n  "+more+"\n  network = {", 1)
}

// docker is the docker block with a price book.
func docker(book string) string {
	return fmt.Sprintf("\n  docker = {\n    price_book = %q\n  }\n", book)
}

// The plan uses the prices that the reconciler charges, and checks a cap against them.
func TestAccThePlanHasThePricesOfTheReconciler(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	r, book := priced(t, w)
	tf := terraform(t, r.Configuration+expecting(w, ""))
	plan := tf.Run("plan", "-input=false", "-no-color")
	if !strings.Contains(plan, "+ estimated_monthly_cost_usd") || strings.Contains(plan, `= "0.00"`) {
		t.Errorf("the plan has no cost:\n%s", plan)
	}
	tf.Write("main.tf", r.Configuration+expecting(w, `max_monthly_cost_usd = "0.01"`))
	if said := tf.Fail("plan", "-input=false", "-no-color"); !strings.Contains(said, "Estimated Cost Above The Cap") ||
		!strings.Contains(said, "ours") {
		t.Errorf("the plan says\n%s", said)
	}
	same := strings.Replace(r.Configuration, "{\n", "{"+docker(book), 1)
	tf.Write("main.tf", same+expecting(w, ""))
	tf.Run("plan", "-input=false")
	other := w.WriteFile("other.json", strings.Replace(ourPrices, "0.00002", "0.00001", 1))
	tf.Write("main.tf", strings.Replace(r.Configuration, "{\n", "{"+docker(other), 1)+expecting(w, ""))
	if said := tf.Fail("plan", "-input=false", "-no-color"); !strings.Contains(said, "other.json") ||
		!strings.Contains(said, "--docker-price-book") {
		t.Errorf("with a different price book, the plan says\n%s", said)
	}
}

// The error says that the reconciler has no prices.
func TestAccAPriceBookNeedsTheReconcilers(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	r := w.Reconciler()
	with := strings.Replace(r.Configuration, "{\n", "{"+docker(w.WriteFile("prices.json", ourPrices)), 1)
	tf := terraform(t, with+expecting(w, ""))
	said := strings.Join(strings.Fields(tf.Fail("plan", "-input=false", "-no-color")), " ")
	if !strings.Contains(said, "has no price book for Docker and charges nothing") {
		t.Errorf("the plan says\n%s", said)
	}
}

// A plan that sets a budget without prices warns. Later plans do not.
func TestAccABudgetWithoutPricesIsReported(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	tf := terraform(t, w.Embedded()+strings.Replace(environment(w), "\n  network = {",
		"\n  budget = { monthly_usd = \"5.00\" }\n  network = {", 1))
	d := tf.Plan().Warning(t, "No Prices For The Budget")
	if !strings.Contains(d.Detail, "the budget is never spent") {
		t.Errorf("it says %s", d.Detail)
	}
	tf.Run("apply", "-auto-approve", "-input=false")
	if p := tf.Plan(); len(p.Changes) != 0 || len(p.Diagnostics) != 0 {
		t.Errorf("after the apply the plan is %+v", p)
	}
	tf.Run("destroy", "-auto-approve", "-input=false")
}

// A cap never passes because a price book is missing, with or without a reconciler.
func TestAccACapNeedsPrices(t *testing.T) {
	t.Parallel()
	providertest.OverAService(t, func(t *testing.T, w *providertest.World, configuration string) {
		tf := terraform(t, configuration+expecting(w, `max_monthly_cost_usd = "1000"`))
		if said := tf.Fail("plan", "-input=false", "-no-color"); !strings.Contains(said, "No Prices For The Cost Cap") {
			t.Errorf("the plan says\n%s", said)
		}
	})
}
