package console

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/contexts"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// completionTime is how long completion waits for the reconciler before it offers nothing.
const completionTime = 2 * time.Second

// Complete registers the values of a flag for shell completion.
func Complete[T ~string](cmd *cobra.Command, flag string, values ...T) {
	offered := make([]string, len(values))
	for i, v := range values {
		offered[i] = string(v)
	}
	// It fails only for a flag that the command does not have.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(offered, cobra.ShellCompDirectiveNoFileComp))
}

// completeShared registers completions of --context, and of ids of leases and environments. The usage of a command
// names the kind of each argument.
func (c *Console) completeShared(top *cobra.Command) {
	c.completeContexts(top)
	Each(top, func(cmd *cobra.Command) {
		for flag, list := range map[string]lister{"environment": environmentIDs, "lease": leaseIDs} {
			if cmd.LocalNonPersistentFlags().Lookup(flag) != nil {
				_ = cmd.RegisterFlagCompletionFunc(flag, c.offer(list))
			}
		}
		names := strings.Fields(cmd.Use)[1:]
		if cmd.ValidArgsFunction != nil || len(names) == 0 {
			return
		}
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
			if len(args) < len(names) {
				switch names[len(args)] {
				case "<lease>":
					return c.offer(leaseIDs)(cmd, args, text)
				case "<environment>":
					return c.OfferEnvironments(cmd, args, text)
				}
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
	})
}

// lister returns ids that begin with a text.
type lister func(ctx context.Context, service *client.Client) ([]string, error)

// offer returns a completion that asks the reconciler. It ignores errors, because the user is still typing.
func (c *Console) offer(list lister) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, text string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		c.Output = Table
		service, err := c.Connect(cmd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ids, err := list(ctx, service)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var found []string
		for _, id := range ids {
			if strings.HasPrefix(id, text) {
				found = append(found, id)
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// leaseIDs returns the ids of leases that have not ended, at most a page of them.
func leaseIDs(ctx context.Context, service *client.Client) (ids []string, err error) {
	leases, err := service.ListLeases(ctx, sandbox.LeaseFilter{Status: sandbox.LeaseActive, Limit: sandbox.MaxPage})
	for _, l := range leases {
		ids = append(ids, l.ID)
	}
	return ids, err
}

// OfferEnvironments completes ids of environments.
func (c *Console) OfferEnvironments(cmd *cobra.Command, args []string, text string) ([]string,
	cobra.ShellCompDirective) {
	return c.offer(environmentIDs)(cmd, args, text)
}

func environmentIDs(ctx context.Context, service *client.Client) (ids []string, err error) {
	environments, err := service.ListEnvironments(ctx)
	for _, e := range environments {
		ids = append(ids, e.ID)
	}
	return ids, err
}

// OfferContexts completes names of contexts.
func (c *Console) OfferContexts(_ *cobra.Command, args []string, _ string) (names []string,
	_ cobra.ShellCompDirective) {
	if saved, err := contexts.Read(c.Getenv); err == nil && len(args) == 0 {
		for _, one := range saved.Contexts {
			names = append(names, one.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeContexts completes --context.
func (c *Console) completeContexts(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("context",
		func(cmd *cobra.Command, _ []string, text string) ([]string, cobra.ShellCompDirective) {
			return c.OfferContexts(cmd, nil, text)
		})
}
