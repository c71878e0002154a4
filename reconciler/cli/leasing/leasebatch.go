package leasing

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func createLeases(c *console.Console) *cobra.Command {
	var (
		want       sandbox.AcquireBatch
		agentsFile string
	)
	cmd := &cobra.Command{
		Use:   "create-batch <environment> [agent]...",
		Short: "Create leases for several agents at once",
		Long: fmt.Sprintf(
			`Create leases for several agents in one environment with one request, and wait until their sandboxes are
ready. Name up to %d agents, as arguments or as lines of --agents-file. The command is idempotent: a repeat returns
the same leases. When some agents get no lease, the others keep theirs and the exit code is not 0. With --all-or-none,
no agent gets one.`, sandbox.MaxBatch),
		Example: "  sandbox lease create-batch catan-7 did:plc:ada did:plc:bob --all-or-none\n" +
			"  sandbox lease create-batch catan-7 --agents-file agents.txt",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Usagef("%s takes an environment; see --help", cmd.CommandPath())
			}
			agents, err := agentsOf(cmd.InOrStdin(), agentsFile)
			if err != nil {
				return err
			}
			want.EnvironmentID = args[0]
			for _, agent := range append(args[1:], agents...) {
				want.Items = append(want.Items, sandbox.BatchItem{AgentDID: agent})
			}
			service, err := c.Connect(cmd)
			if err != nil {
				return err
			}
			results, err := service.AcquireBatch(cmd.Context(), want)
			if err != nil {
				return err
			}
			return printBatch(c, cmd, want, results)
		},
	}
	f := cmd.Flags()
	f.StringVar(&agentsFile, "agents-file", "",
		"`file` with one agent DID per line, or - for standard input; # starts a comment")
	f.BoolVar(&want.AllOrNone, "all-or-none", false,
		"all or nothing: if one agent fails, release the leases that this command created")
	f.StringVar(&want.Owner, "owner", "", "who may renew and release the leases (default: the token)")
	f.BoolVar(&want.NoWait, "no-wait", false, "return once the leases are accepted, while they may still be pending")
	return cmd
}

// agentsOf reads agents from a file, one per line.
func agentsOf(stdin io.Reader, name string) (agents []string, err error) {
	from := stdin
	switch name {
	case "":
		return nil, nil
	case "-":
	default:
		file, err := os.Open(name)
		if err != nil {
			return nil, exit.Usagef("--agents-file: %w", err)
		}
		defer func() { _ = file.Close() }() // only read
		from = file
	}
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if text = strings.TrimSpace(text); text != "" {
			agents = append(agents, text)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, exit.Usagef("--agents-file %s: %w", name, err)
	}
	return agents, nil
}

// printBatch prints the leases of a batch, and returns an error that lists the failed items.
func printBatch(c *console.Console, cmd *cobra.Command, want sandbox.AcquireBatch,
	results []sandbox.AcquireResult) error {
	var (
		page   wire.AcquiredBatch
		leases []sandbox.Lease
		first  error
		failed []string
	)
	for i, r := range results {
		if r.Err != nil {
			p := &wire.Problem{Code: sandbox.CodeOf(r.Err), Reason: sandbox.ReasonOf(r.Err), Detail: r.Err.Error()}
			page.Results = append(page.Results, wire.AcquiredItem{Error: p})
			first, failed = cmp.Or(first, r.Err), append(failed, want.Items[i].AgentDID+": "+r.Err.Error())
			continue
		}
		page.Results = append(page.Results, wire.AcquiredItem{Lease: &results[i].Lease, IsNew: r.IsNew})
		leases = append(leases, r.Lease)
	}
	if err := printLeases(c, cmd, page, leases); err != nil || first == nil {
		return err
	}
	of := printable.Count(len(results), "agent", "agents")
	return sandbox.Errorf(sandbox.CodeOf(first), "no lease for %d of %s: %s", len(failed), of, strings.Join(failed, "; "))
}
