package login

import (
	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/contexts"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/format"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/table"
)

func context(c *console.Console) *cobra.Command {
	list := &cobra.Command{
		Use:   "list",
		Short: "List the reconcilers that you are logged in to",
		Args:  console.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.CheckOutput(); err != nil {
				return err
			}
			saved, err := contexts.Read(c.Getenv)
			if err != nil {
				return err
			}
			return printContexts(c, cmd, saved)
		},
	}
	use := &cobra.Command{
		Use:   "use <context>",
		Short: "Send the next commands to another reconciler",
		Args:  console.Exactly("context"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.CheckOutput(); err != nil {
				return err
			}
			saved, err := contexts.Read(c.Getenv)
			if err != nil {
				return err
			}
			if _, err := saved.Find(args[0]); err != nil {
				return err
			}
			saved.Current = args[0]
			if err := saved.Write(c.Getenv); err != nil {
				return err
			}
			return printContexts(c, cmd, saved)
		},
		ValidArgsFunction: c.OfferContexts,
	}
	cmd := console.Group("context", "List the reconcilers that you are logged in to, or change to another", list, use)
	c.OutputFlags(cmd)
	return cmd
}

// contextView is a context without its token.
type contextView struct {
	Name    string `json:"name"`
	URL     string `json:"url"`
	CAFile  string `json:"ca_file,omitempty"`
	Current bool   `json:"current"`
}

func printContexts(c *console.Console, cmd *cobra.Command, saved contexts.Saved) error {
	views := make([]contextView, len(saved.Contexts))
	for i, one := range saved.Contexts {
		views[i] = contextView{one.Name, one.URL, one.CAFile, one.Name == saved.Current}
	}
	return c.Print(cmd, map[string][]contextView{"contexts": views}, func(t *table.Table) {
		t.Head(table.Col("CONTEXT"), table.Col("CURRENT"), table.Flex("URL"), table.Wide("CA FILE"))
		for _, v := range views {
			t.Row(v.Name, format.Yes(v.Current), v.URL, v.CAFile)
		}
	})
}
