package servicetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var budgetTests = []test{
	{"BudgetGrantsWhatItCovers", budgetGrantsWhatItCovers},
	{"BudgetTellsOfItsThresholdsOnce", budgetTellsOfItsThresholdsOnce},
}

// budgetGrantsWhatItCovers makes many callers acquire at the same time from a budget that covers three whole leases.
func budgetGrantsWhatItCovers(w *world) {
	_, err := w.Service.PutEnvironment(w.Context(), sandbox.PutEnvironment{
		ID: game,
		EnvironmentSpec: sandbox.EnvironmentSpec{
			Image: "player", Network: sandbox.NetworkNone, Budget: &sandbox.Budget{}},
	})
	w.wantError(err, sandbox.Invalid, "", "budget.monthly_usd")

	// An hour of 1 GiB, 4 GB and a quarter of the limit of a quarter of a core, at Cloudflare's list price.
	const hour = basicHour + 4_500_000
	w.environment(withBudget(3*hour + hour/2))
	results := make(chan error)
	for i := range 50 {
		go func() {
			_, err := w.Service.Acquire(w.Context(),
				sandbox.Acquire{AgentDID: fmt.Sprint("did:plc:a", i), EnvironmentID: game, Owner: owner})
			results <- err
		}()
	}
	granted := 0
	for range 50 {
		if err := <-results; err == nil {
			granted++
		} else {
			w.wantError(err, sandbox.BudgetExceeded, "")
		}
	}
	env := must(w.Service.GetEnvironment(w.Context(), game))(w)
	if granted != 3 || env.BudgetUse == nil || env.BudgetUse.Reserved != 3*hour || env.BudgetUse.Left() != hour/2 {
		w.Fatalf("%d were granted, and the budget stands at %+v", granted, env.BudgetUse)
	}
	w.environment(withBudget(4 * hour))
	w.acquire(ann)
}

// basicHour is the cost of an hour of 1 GiB and 4 GB at Cloudflare's list price, without CPU.
const basicHour = sandbox.NanoUSD(9_000_000 + 1_008_000)

// withBudget gives an environment a budget, and leases of one hour.
func withBudget(n sandbox.NanoUSD) func(p *sandbox.PutEnvironment) {
	basic, _ := sandbox.ResourcesOf("basic")
	return func(p *sandbox.PutEnvironment) {
		p.Resources, p.TTL, p.Budget = basic, sandbox.Duration(time.Hour), &sandbox.Budget{Monthly: n}
	}
}

// budgetTellsOfItsThresholdsOnce spends a budget. Granted and refused acquires then record the thresholds.
func budgetTellsOfItsThresholdsOnce(w *world) {
	const budget = 10 * basicHour
	w.environment(withBudget(budget))
	want := func(reached ...sandbox.BudgetReached) {
		w.Helper()
		var got []sandbox.BudgetReached
		for _, e := range must(w.Service.ListEvents(w.Context(), sandbox.EventFilter{EnvironmentID: game}))(w) {
			var told sandbox.BudgetReached
			if e.Type != sandbox.EventBudgetReached {
				continue
			}
			if err := json.Unmarshal(e.Data, &told); err != nil {
				w.Fatal(err)
			}
			told.Spent = 0 // it varies by some seconds between implementations
			got = append(got, told)
		}
		if !slices.Equal(got, reached) {
			w.Fatalf("the events have %+v, want %+v", got, reached)
		}
	}
	tryAnother := func(n int) {
		for i := range n {
			_, err := w.Service.Acquire(w.Context(),
				sandbox.Acquire{AgentDID: fmt.Sprint("did:plc:b", i), EnvironmentID: game, Owner: owner})
			if err != nil {
				w.wantError(err, sandbox.BudgetExceeded, "")
			}
		}
	}
	spend := func() { // four hours
		for _, agent := range []string{ann, bob, "did:plc:cat", "did:plc:dan"} {
			if _, err := w.Service.Acquire(w.Context(),
				sandbox.Acquire{AgentDID: agent, EnvironmentID: game, Owner: owner}); err != nil {
				w.wantError(err, sandbox.BudgetExceeded, "")
			}
		}
		w.Advance(time.Hour + time.Minute)
	}
	w.environment(withBudget(1000 * basicHour))
	spend()
	spend()
	w.environment(withBudget(budget)) // 80 % of it is spent
	want()
	tryAnother(3)
	eighty := sandbox.BudgetReached{Month: "2026-08", Percent: 80, Monthly: budget}
	want(eighty)
	w.environment(withBudget(1000 * basicHour))
	spend()
	w.environment(withBudget(budget)) // the same budget again, now exceeded
	tryAnother(3)
	hundred := sandbox.BudgetReached{Month: "2026-08", Percent: 100, Monthly: budget}
	want(eighty, hundred)
	w.environment(withBudget(2 * basicHour)) // a different budget
	tryAnother(2)
	other := sandbox.BudgetReached{Month: "2026-08", Percent: 80, Monthly: 2 * basicHour}
	otherHundred := other
	otherHundred.Percent = 100
	want(eighty, hundred, other, otherHundred)
}
