package cli

import (
	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (a *app) workspaces() *cobra.Command {
	var ref sandbox.LeaseRef
	bundle := a.collectWorkspace(&ref, sandbox.WorkspaceBundle, "Write the commits to standard output, as a Git bundle")
	bundle.Example = `  sandbox workspace bundle ada@coding-1 >work.bundle && git fetch work.bundle`
	cmd := group("workspace", "Read the commits of a lease's workspace, or push them", bundle,
		a.collectWorkspace(&ref, sandbox.WorkspaceDiff, "Write the changes to standard output, as a unified diff"),
		a.pushWorkspace(&ref))
	cmd.Long = `Read what was committed on the branch of a lease's workspace since the lease began, or push it. Each
command wakes the sandbox if needed and counts as activity.`
	cmd.PersistentFlags().Int64Var(&ref.Generation, "generation", 0, "fail unless the lease has this generation")
	return cmd
}

func (a *app) collectWorkspace(ref *sandbox.LeaseRef, form sandbox.WorkspaceForm, short string) *cobra.Command {
	return &cobra.Command{
		Use:   string(form) + " <lease>",
		Short: short,
		Args:  exactly("lease"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, id, err := a.connectTo(cmd, args[0])
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

func (a *app) pushWorkspace(ref *sandbox.LeaseRef) *cobra.Command {
	return &cobra.Command{
		Use:   "push <lease>",
		Short: "Push the commits to the repository, under the environment's push_prefix",
		Args:  exactly("lease"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, id, err := a.connectTo(cmd, args[0])
			if err != nil {
				return err
			}
			ref.ID = id
			pushed, err := service.PushWorkspace(cmd.Context(), *ref)
			if err != nil {
				return err
			}
			return a.print(cmd, pushed, func(t *table) {
				t.head(col("BRANCH"), col("COMMIT"))
				t.row(pushed.Branch, pushed.Commit)
			})
		},
	}
}
