package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (a *app) costs() *cobra.Command {
	var (
		q        sandbox.CostQuery
		within   span
		accounts bool
	)
	cmd := &cobra.Command{
		Use:   "costs",
		Short: "Show what sandboxes have used and cost",
		Long: `Show what sandboxes have used, in hours, and what that cost, in US dollars at the prices that were in
force. GROSS is the sum of the use at list price. INCLUDED is the share of what the account's plan
includes, PLAN FEE the share of what the plan costs, and NET what remains; shares are made over the
account's whole calendar month (UTC), up to --to. ON CLOUDFLARE is the net of the same use there.

--accounts shows the lines of the accounts instead, which are whatever else is selected.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := within.parse(&q.From, &q.To); err != nil {
				return err
			}
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			stop := Progress(cmd, "adding up costs")
			report, err := service.Costs(cmd.Context(), q)
			stop()
			if err != nil {
				return err
			}
			return a.print(cmd, report, func(t *table) {
				if accounts {
					fillAccounts(t, report.Accounts)
				} else {
					fillCosts(t, q.GroupBy, report)
				}
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.EnvironmentID, "environment", "", "only of this environment")
	f.StringVar(&q.AgentDID, "agent", "", "only of this agent")
	within.flags(f)
	f.StringVar((*string)(&q.GroupBy), "group-by", string(sandbox.CostByLease), "lease, environment, agent, day or month")
	complete(cmd, "group-by", sandbox.CostByLease, sandbox.CostByEnvironment, sandbox.CostByAgent, sandbox.CostByDay, sandbox.CostByMonth)
	f.BoolVar(&accounts, "accounts", false, "show what each account owes for each month, line by line")
	return cmd
}

// costNames are what each grouping's first column is called and shows.
var costNames = map[sandbox.CostGroup]struct {
	title string
	of    func(sandbox.CostRow) string
}{
	sandbox.CostByLease:       {"LEASE", leaseOrPool},
	sandbox.CostByEnvironment: {"ENVIRONMENT", func(r sandbox.CostRow) string { return r.EnvironmentID }},
	sandbox.CostByAgent:       {"AGENT", func(r sandbox.CostRow) string { return orPools(r.AgentDID) }},
	sandbox.CostByDay:         {"DAY (UTC)", func(r sandbox.CostRow) string { return r.Day }},
	sandbox.CostByMonth:       {"MONTH (UTC)", func(r sandbox.CostRow) string { return r.Month }},
}

func leaseOrPool(r sandbox.CostRow) string {
	if r.LeaseID == "" {
		return "warm pool of " + r.EnvironmentID
	}
	return r.LeaseID
}

func orPools(agent string) string {
	if agent == "" {
		return "warm pools"
	}
	return agent
}

func fillCosts(t *table, by sandbox.CostGroup, report sandbox.CostReport) {
	name := costNames[by]
	rows := [][]string{{name.title, "GENERATIONS", "AWAKE h", "ASLEEP h", "CPU h", "GROSS", "INCLUDED", "PLAN FEE", "NET", "ON CLOUDFLARE"}}
	hours := inHours(report.Total.AwakeSeconds + report.Total.AsleepSeconds)
	add := func(name string, r sandbox.CostRow) {
		rows = append(rows, []string{name, strconv.FormatInt(r.Generations, 10), hours(r.AwakeSeconds), hours(r.AsleepSeconds), hours(r.CPUSeconds),
			dollars(r.Gross), takenOff(r.Included), dollars(r.PlanFee), dollars(r.Net), dollars(r.Shadow.Net)})
	}
	for _, r := range report.Rows {
		add(name.of(r), r)
	}
	add("total", report.Total)
	alignRight(rows, 1, len(rows[0]))
	for _, cells := range rows {
		t.row(cells...)
	}
	if report.Total.PlanFee > 0 {
		t.note("PLAN FEE is what the plans of the accounts cost, " + planFees(report.PriceBooks) + " from the first sandbox on; each row has its share.")
	}
}

// planFees says what the plans cost that are in force.
func planFees(books map[sandbox.Backend]sandbox.PriceBook) string {
	fees := "in full for each month"
	for _, b := range slices.Sorted(maps.Keys(books)) {
		if fee := books[b].PlanMonth; fee > 0 {
			fees += fmt.Sprintf(" (%s a month on %s)", dollars(fee), b)
		}
	}
	return fees
}

func fillAccounts(t *table, accounts []sandbox.AccountMonth) {
	rows := [][]string{{"MONTH (UTC)", "LINE", "UNIT", "USED", "ALLOTMENT", "GROSS", "INCLUDED", "NET", "PRICE BOOK", "ACCOUNT"}}
	for _, a := range accounts {
		account := string(a.Backend) + " " + a.Instance
		rows = append(rows, statementRows(a.Month, account, a.Statement)...)
		if a.Shadow.PriceBook != a.PriceBook {
			rows = append(rows, statementRows(a.Month, account, a.Shadow)...)
		}
	}
	alignRight(rows, 3, 8)
	for _, cells := range rows {
		t.row(cells...)
	}
}

// statementRows are the lines of one statement and their sum.
func statementRows(month, account string, s sandbox.Statement) [][]string {
	book := s.PriceBook
	if s.AsOf != "" {
		book += " of " + s.AsOf
	}
	figure := func(x float64) string { return strconv.FormatFloat(x, 'f', 3, 64) }
	line := func(cells ...string) []string {
		return append(append([]string{month}, cells...), book, account)
	}
	var rows [][]string
	for _, l := range s.Lines {
		rows = append(rows, line(string(l.Resource), l.Unit, figure(l.Used), figure(l.Allotment), dollars(l.Gross), takenOff(l.Included), dollars(l.Gross-l.Included)))
	}
	return append(rows,
		line("plan fee", "", "", "", "", "", dollars(s.PlanFee)),
		line("total", "", "", "", dollars(s.Gross), takenOff(s.Included), dollars(s.Net)))
}

// takenOff shows what is taken off a cost.
func takenOff(n sandbox.NanoUSD) string {
	if n == 0 {
		return dollars(0)
	}
	return "-" + dollars(n)
}
