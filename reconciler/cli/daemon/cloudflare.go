package daemon

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// addCloudflareFlags adds the flags of the account for environments with backend = "cloudflare".
func addCloudflareFlags(f *pflag.FlagSet, to *deploy.Config) {
	f.StringVar(&to.AccountID, "cloudflare-account", "", "`id` of the Cloudflare account for sandboxes, or "+
		deploy.EnvAccount+"; "+deploy.EnvToken+" holds its token (default: none)")
	f.IntVar(&to.MaxInstances, "cloudflare-max-instances", cloudflare.DefaultMaxInstances, fmt.Sprintf(
		"maximum number of sandboxes that run at once in an environment of the policy default, 1 to %d",
		cloudflare.MaxMaxInstances))
	f.StringVar((*string)(&to.SchedulingPolicy), "cloudflare-scheduling-policy", string(cloudflare.PolicyDefault),
		"scheduling `policy` of new environments: default (one image and size per environment; "+
			"a change replaces running containers) or durable_object "+
			"(each start chooses its image and size; a change replaces no sandbox)")
}

// fillCloudflare completes the account's settings from the environment. It ignores an account or a token that the
// environment sets without the other, because it belongs to another program. Errors: Invalid.
func fillCloudflare(to *deploy.Config, getenv func(string) string) error {
	if _, err := cloudflare.ParseSchedulingPolicy(string(to.SchedulingPolicy)); err != nil {
		return sandbox.Errorf(sandbox.Invalid, "--cloudflare-scheduling-policy: %w", err)
	}
	if to.MaxInstances < 1 || to.MaxInstances > cloudflare.MaxMaxInstances {
		return sandbox.Errorf(sandbox.Invalid, "--cloudflare-max-instances must be between 1 and %d, not %d",
			cloudflare.MaxMaxInstances, to.MaxInstances)
	}
	named := to.AccountID
	to.FillIn(getenv)
	switch {
	case named != "" && to.Token == "":
		return sandbox.Errorf(sandbox.Invalid, "--cloudflare-account %s needs an API token: set %s", named, deploy.EnvToken)
	case to.AccountID == "" || to.Token == "":
		*to = deploy.Config{SchedulingPolicy: to.SchedulingPolicy, MaxInstances: to.MaxInstances} // --check shows them
	}
	return nil
}
