package operate

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/flags"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/format"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/table"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func costs(c *console.Console) *cobra.Command {
	var (
		q        sandbox.CostQuery
		within   console.Span
		accounts bool
	)
	cmd := &cobra.Command{
		Use:   "cost",
		Short: "Show the usage and the cost of sandboxes",
		Long: `Show the usage of sandboxes in hours, and its cost in US dollars at the prices of that time. GROSS is
the usage at list price. LLM is what model calls cost, TOTAL is GROSS + LLM; both columns are there
once a model was called. ON CLOUDFLARE is the cost of the same usage there, at list price.

--accounts shows what each account owes for a calendar month (UTC) instead: its lines, what its plan
includes, and the plan fee. The other filters do not apply to it. Only -o json and -o yaml also have what
the same usage would cost on Cloudflare, as shadow: no account owes that.`,
		Args: console.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := within.Parse(&q.From, &q.To); err != nil {
				return err
			}
			service, err := c.Connect(cmd)
			if err != nil {
				return err
			}
			report, err := service.Costs(cmd.Context(), q)
			if err != nil {
				return err
			}
			return c.Print(cmd, report, func(t *table.Table) {
				if accounts {
					fillAccounts(t, report.Accounts)
				} else {
					fillCosts(t, q.GroupBy, report)
				}
			})
		},
	}
	f := cmd.Flags()
	flags.Filter(f, &q.EnvironmentID, "environment", "only this environment")
	flags.Filter(f, &q.AgentDID, "agent", "only this agent")
	within.Flags(f)
	console.LabelFlag(f, &q.Labels, "only leases with these current")
	f.StringVar((*string)(&q.GroupBy), "group-by", string(sandbox.CostByLease),
		"lease, environment, agent, day, month or label:`key`")
	console.Complete(cmd, "group-by", sandbox.CostByLease, sandbox.CostByEnvironment, sandbox.CostByAgent,
		sandbox.CostByDay, sandbox.CostByMonth)
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

func fillCosts(t *table.Table, by sandbox.CostGroup, report sandbox.CostReport) {
	name, known := costNames[by]
	if key, byLabel := by.Label(); byLabel && !known {
		name.title, name.of = "LABEL "+key, func(r sandbox.CostRow) string { return r.Label }
	}
	key := table.Flex(name.title)
	if by == sandbox.CostByLease {
		key = key.OfLeases()
	}
	columns := []table.Column{key, table.WideNum("GENERATIONS"), table.Num("AWAKE h"), table.WideNum("ASLEEP h"),
		table.Num("CPU h"), table.Num("GROSS")}
	models := report.Total.LLM.Calls > 0
	if models {
		columns = append(columns, table.Num("TOKENS"), table.Num("LLM"), table.Num("TOTAL"))
	}
	t.Head(append(columns, table.Num("ON CLOUDFLARE"))...)
	hours := format.Hours(report.Total.AwakeSeconds + report.Total.AsleepSeconds)
	add := func(name string, r sandbox.CostRow) {
		cells := []string{
			name, strconv.FormatInt(r.Generations, 10), hours(r.AwakeSeconds), hours(r.AsleepSeconds), hours(r.CPUSeconds),
			format.Dollars(r.Gross),
		}
		if models {
			cells = append(cells, strconv.FormatInt(r.LLM.Tokens.Total(), 10), format.Dollars(r.LLM.Cost),
				format.Dollars(r.Total))
		}
		t.Row(append(cells, format.Dollars(r.Shadow))...)
	}
	for _, r := range report.Rows {
		add(name.of(r), r)
	}
	add("total", report.Total)
	if n := report.Total.LLM.UnknownCalls; n > 0 {
		t.Note(fmt.Sprintf("LLM includes %s for %d calls whose provider did not report their usage: the most that they can "+
			"have cost.", format.Dollars(report.Total.LLM.Unknown), n))
	}
}

func fillAccounts(t *table.Table, accounts []sandbox.AccountMonth) {
	t.Head(table.Col("MONTH (UTC)"), table.Col("LINE"), table.Flex("UNIT"), table.Num("USED"), table.Num("ALLOTMENT"),
		table.Num("GROSS"), table.Num("INCLUDED"), table.Num("NET"), table.Wide("PRICE BOOK"), table.Flex("ACCOUNT"))
	var rows [][]string
	for _, a := range accounts {
		account := string(a.Backend) + " " + a.Instance
		rows = append(rows, statementRows(a.Month, account, a.Statement)...)
	}
	for _, cells := range rows {
		t.Row(cells...)
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
		rows = append(rows, line(string(l.Resource), l.Unit, figure(l.Used), figure(l.Allotment), format.Dollars(l.Gross),
			takenOff(l.Included), format.Dollars(l.Gross-l.Included)))
	}
	return append(rows,
		line("plan fee", "", "", "", "", "", format.Dollars(s.PlanFee)),
		line("total", "", "", "", format.Dollars(s.Gross), takenOff(s.Included), format.Dollars(s.Net)))
}

// takenOff formats a deduction.
func takenOff(n sandbox.NanoUSD) string {
	if n == 0 {
		return format.Dollars(0)
	}
	return "-" + format.Dollars(n)
}
