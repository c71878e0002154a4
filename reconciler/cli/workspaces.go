package cli

import (
	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (a *app) workspaces() *cobra.Command {
	var ref sandbox.LeaseRef
	cmd := &cobra.Command{
		Use:   "workspace",
		Short: "Read the commits of a lease's workspace, or push them",
		Long: `Read what was committed on the branch of a lease's workspace since the lease began, or push it. Each command
wakes the sandbox if needed and counts as activity.`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().Int64Var(&ref.Generation, "generation", 0, "fail unless the lease has this generation")
	bundle := a.collectWorkspace(&ref, sandbox.WorkspaceBundle, "Write the commits to standard output, as a Git bundle")
	bundle.Example = `  reconciler workspace bundle did:plc:abc::coding-1 >work.bundle && git fetch work.bundle`
	cmd.AddCommand(bundle, a.collectWorkspace(&ref, sandbox.WorkspaceDiff,
		"Write the changes to standard output, as a unified diff"), a.pushWorkspace(&ref))
	return cmd
}

func (a *app) collectWorkspace(ref *sandbox.LeaseRef, form sandbox.WorkspaceForm, short string) *cobra.Command {
	return &cobra.Command{
		Use:   string(form) + " <lease>",
		Short: short,
		Args:  exactly("lease"),
		RunE: func(cmd *cobra.Command, args []string) error {
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			ref.ID = args[0]
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
			service, err := a.connect(cmd)
			if err != nil {
				return err
			}
			ref.ID = args[0]
			pushed, err := service.PushWorkspace(cmd.Context(), *ref)
			if err != nil {
				return err
			}
			return a.print(cmd, pushed, func(t *table) {
				t.row("BRANCH", "COMMIT")
				t.row(pushed.Branch, pushed.Commit)
			})
		},
	}
}
