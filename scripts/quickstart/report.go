package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/scripts/harness"
)

// plan is step 7: a plan shows which leases ended and why, what vanished, and the costs. It only creates the vanished
// lease again.
func (q *quickstart) plan(ctx context.Context) (outcome, error) {
	p, err := q.terraform.Plan(ctx, q.reconciler)
	if err != nil {
		return outcome{}, err
	}
	told, err := q.planned(p.Effective())
	if err != nil {
		return outcome{}, err
	}
	if err := endedLeases(p.Changes); err != nil {
		return outcome{}, err
	}
	o := outcome{line: "terraform plan: 5 ended leases stay ended, " + told + " " + p.Summary}
	slices.SortFunc(p.Warnings, func(a, b harness.Diagnostic) int { return cmp.Compare(a.Summary, b.Summary) })
	for _, w := range p.Warnings {
		o.details = append(o.details, w.Severity+": "+w.Summary, "  "+strings.ReplaceAll(w.Detail, "\n", "\n       "))
	}
	if len(p.Warnings) == 0 {
		return outcome{}, fmt.Errorf("the plan warns of nothing")
	}
	for _, args := range [][]string{{"cost"}, {"drift"}} {
		table, err := q.report(ctx, args...)
		if err != nil {
			return outcome{}, err
		}
		o.details = append(o.details, table...)
	}
	return o, q.checkReports(ctx)
}

// planned checks and describes the changes of a plan. A lease whose sandbox vanished is created again. A lease whose
// sandbox was restarted continues.
func (q *quickstart) planned(changed []harness.Change) (string, error) {
	if q.backend == sandbox.Cloudflare {
		if len(changed) > 0 {
			return "", fmt.Errorf("the plan should change nothing; it has %s", describe(changed))
		}
		return "the one that was started again goes on.", nil
	}
	if len(changed) != 1 || !slices.Equal(changed[0].Change.Actions, []string{"create"}) ||
		!strings.Contains(changed[0].Address, survivor) {
		return "", fmt.Errorf("the plan should create the lease of %s again and nothing else; it has %s",
			survivor, describe(changed))
	}
	return "the vanished one is planned again.", nil
}

// endedLeases checks that the plan shows the five ended leases with a reason.
func endedLeases(changes []harness.Change) error {
	ended := 0
	for _, c := range changes {
		if c.Type != "sandbox_lease" || !slices.Equal(c.Change.Actions, []string{"no-op"}) {
			continue
		}
		var lease struct {
			Status    string `json:"status"`
			EndedBy   string `json:"ended_by"`
			EndReason string `json:"end_reason"`
		}
		if err := json.Unmarshal(c.Change.After, &lease); err != nil {
			return fmt.Errorf("%s: %w", c.Address, err)
		}
		if strings.Contains(c.Address, survivor) { // it continues; planned has checked it
			continue
		}
		if lease.Status != string(sandbox.LeaseDestroyed) || lease.EndedBy != string(sandbox.EndedByCondition) ||
			lease.EndReason == "" {
			return fmt.Errorf("%s should be destroyed by a condition, with a reason; it is %+v", c.Address, lease)
		}
		ended++
	}
	if ended != 5 {
		return fmt.Errorf("the plan shows %d ended leases, not 5", ended)
	}
	return nil
}

// report returns the lines of a report of the reconciler's command line.
func (q *quickstart) report(ctx context.Context, args ...string) ([]string, error) {
	text, err := q.reconciler.Run(ctx, append(args, "--url", q.reconciler.URL, "--token-file", q.reconciler.TokenFile)...)
	if err != nil {
		return nil, err
	}
	return append([]string{"", "$ sandbox " + strings.Join(args, " ")},
		strings.Split(strings.TrimRight(text, "\n"), "\n")...), nil
}

// checkReports checks that the ledger holds the costs of all six leases and the drift of one sandbox.
func (q *quickstart) checkReports(ctx context.Context) error {
	costs, err := q.reconciler.Service.Costs(ctx, sandbox.CostQuery{})
	if err != nil {
		return err
	}
	for _, row := range costs.Rows {
		if row.Gross <= 0 {
			return fmt.Errorf("lease %s cost $%s, which cannot be", row.LeaseID, row.Gross)
		}
	}
	if len(costs.Rows) != 6 {
		return fmt.Errorf("the ledger knows the costs of %d leases, not of 6", len(costs.Rows))
	}
	findings, err := q.reconciler.Service.ListDrift(ctx, sandbox.DriftFilter{})
	if err != nil {
		return err
	}
	kind := sandbox.DriftVanished
	if q.backend == sandbox.Cloudflare {
		kind = sandbox.DriftStopped
	}
	if len(findings) != 1 || findings[0].Kind != kind || findings[0].LeaseID != sandbox.LeaseID(survivor, rpg) {
		return fmt.Errorf("the ledger should hold one drift finding, a sandbox of %s that %s; it holds %+v",
			survivor, kind, findings)
	}
	return nil
}

func describe(changes []harness.Change) string {
	var all []string
	for _, c := range changes {
		all = append(all, strings.Join(c.Change.Actions, "+")+" "+c.Address)
	}
	if all == nil {
		return "no changes"
	}
	return strings.Join(all, ", ")
}
