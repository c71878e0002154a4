package cli

import (
	"fmt"
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
		Use:   "cost",
		Short: "Show the usage and the cost of sandboxes",
		Long: `Show the usage of sandboxes in hours, and its cost in US dollars at the prices of that time. GROSS is
the usage at list price. LLM is what calls of models cost, TOTAL is GROSS + LLM; both columns are there
once a model was called. ON CLOUDFLARE is the cost of the same usage there, at list price.

--accounts shows what each account owes for a calendar month (UTC) instead: its lines, what its plan
includes, and the plan fee. The other filters do not apply to it.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := within.parse(&q.From, &q.To); err != nil {
				return err
			}
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			report, err := service.Costs(cmd.Context(), q)
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
	f.StringVar(&q.EnvironmentID, "environment", "", "only this environment")
	f.StringVar(&q.AgentDID, "agent", "", "only this agent")
	within.flags(f)
	labelFlag(f, &q.Labels, "only leases with these current")
	f.StringVar((*string)(&q.GroupBy), "group-by", string(sandbox.CostByLease),
		"lease, environment, agent, day, month or label:`key`")
	complete(cmd, "group-by", sandbox.CostByLease, sandbox.CostByEnvironment, sandbox.CostByAgent, sandbox.CostByDay,
		sandbox.CostByMonth)
	f.BoolVar(&accounts, "accounts", false, "show the monthly statement of each account")
	return cmd
}

// costNames gives the title and the value of the first column for each grouping.
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
	name, known := costNames[by]
	if key, byLabel := by.Label(); byLabel && !known {
		name.title, name.of = "LABEL "+key, func(r sandbox.CostRow) string { return r.Label }
	}
	key := flex(name.title)
	key.lease = by == sandbox.CostByLease
	columns := []column{key, wideNum("GENERATIONS"), num("AWAKE h"), wideNum("ASLEEP h"), num("CPU h"), num("GROSS")}
	models := report.Total.LLM.Calls > 0
	if models {
		columns = append(columns, num("TOKENS"), num("LLM"), num("TOTAL"))
	}
	t.head(append(columns, num("ON CLOUDFLARE"))...)
	hours := inHours(report.Total.AwakeSeconds + report.Total.AsleepSeconds)
	add := func(name string, r sandbox.CostRow) {
		cells := []string{
			name, strconv.FormatInt(r.Generations, 10), hours(r.AwakeSeconds), hours(r.AsleepSeconds), hours(r.CPUSeconds),
			dollars(r.Gross),
		}
		if models {
			cells = append(cells, strconv.FormatInt(r.LLM.Tokens.Total(), 10), dollars(r.LLM.Cost), dollars(r.Total))
		}
		t.row(append(cells, dollars(r.Shadow))...)
	}
	for _, r := range report.Rows {
		add(name.of(r), r)
	}
	add("total", report.Total)
	if n := report.Total.LLM.UnknownCalls; n > 0 {
		t.note(fmt.Sprintf("LLM includes %s for %d calls whose provider did not report their usage: the most that they can "+
			"have cost.", dollars(report.Total.LLM.Unknown), n))
	}
}

func fillAccounts(t *table, accounts []sandbox.AccountMonth) {
	t.head(col("MONTH (UTC)"), col("LINE"), flex("UNIT"), num("USED"), num("ALLOTMENT"), num("GROSS"), num("INCLUDED"),
		num("NET"), wide("PRICE BOOK"), flex("ACCOUNT"))
	var rows [][]string
	for _, a := range accounts {
		account := string(a.Backend) + " " + a.Instance
		rows = append(rows, statementRows(a.Month, account, a.Statement)...)
		if a.Shadow.PriceBook != a.PriceBook {
			rows = append(rows, statementRows(a.Month, account, a.Shadow)...)
		}
	}
	for _, cells := range rows {
		t.row(cells...)
	}
}

// statementRows returns the lines of one statement and their total.
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
		rows = append(rows, line(string(l.Resource), l.Unit, figure(l.Used), figure(l.Allotment), dollars(l.Gross),
			takenOff(l.Included), dollars(l.Gross-l.Included)))
	}
	return append(rows,
		line("plan fee", "", "", "", "", "", dollars(s.PlanFee)),
		line("total", "", "", "", dollars(s.Gross), takenOff(s.Included), dollars(s.Net)))
}

// takenOff formats a deduction.
func takenOff(n sandbox.NanoUSD) string {
	if n == 0 {
		return dollars(0)
	}
	return "-" + dollars(n)
}
