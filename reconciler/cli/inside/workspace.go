package inside

import (
	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/table"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func workspaces(c *console.Console) *cobra.Command {
	var ref sandbox.LeaseRef
	bundle := collectWorkspace(c, &ref, sandbox.WorkspaceBundle, "Write the commits to standard output, as a Git bundle")
	bundle.Example = `  sandbox workspace bundle ada@coding-1 >work.bundle && git fetch work.bundle`
	cmd := console.Group("workspace", "Read the commits of a lease's workspace, or push them", bundle,
		collectWorkspace(c, &ref, sandbox.WorkspaceDiff, "Write the changes to standard output, as a unified diff"),
		pushWorkspace(c, &ref))
	cmd.Long = `Read what was committed on the branch of a lease's workspace since the lease began, or push it. Each
command wakes the sandbox if needed and counts as activity.`
	cmd.PersistentFlags().Int64Var(&ref.Generation, "generation", 0, "fail unless the lease has this generation")
	return cmd
}

func collectWorkspace(c *console.Console, ref *sandbox.LeaseRef, form sandbox.WorkspaceForm,
	short string) *cobra.Command {
	return &cobra.Command{
		Use:   string(form) + " <lease>",
		Short: short,
		Args:  console.Exactly("lease"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, id, err := c.ConnectTo(cmd, args[0])
			if err != nil {
				return err
			}
			ref.ID = id
			content, err := service.CollectWorkspace(cmd.Context(), *ref, form)
			if err != nil {
				return err
			}
			return copyAndClose(cmd.OutOrStdout(), content)
		},
	}
}

func pushWorkspace(c *console.Console, ref *sandbox.LeaseRef) *cobra.Command {
	return &cobra.Command{
		Use:   "push <lease>",
		Short: "Push the commits to the repository, under the environment's push_prefix",
		Args:  console.Exactly("lease"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, id, err := c.ConnectTo(cmd, args[0])
			if err != nil {
				return err
			}
			ref.ID = id
			pushed, err := service.PushWorkspace(cmd.Context(), *ref)
			if err != nil {
				return err
			}
			return c.Print(cmd, pushed, func(t *table.Table) {
				t.Head(table.Col("BRANCH"), table.Col("COMMIT"))
				t.Row(pushed.Branch, pushed.Commit)
			})
		},
	}
}
