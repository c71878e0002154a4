package reconciler

import (
	"cmp"

	"github.com/spf13/pflag"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// addCloudflareFlags adds the flags of the account that environments with backend = "cloudflare" run on.
func addCloudflareFlags(f *pflag.FlagSet, to *deploy.Config) {
	f.StringVar(&to.AccountID, "cloudflare-account", "", "`id` of the Cloudflare account that sandboxes may run on, or "+deploy.EnvAccount+
		"; its token comes from "+deploy.EnvToken+" (default: none)")
}

// fillCloudflare completes the settings of an account from the environment. A token without an account is not
// for us. Errors: Invalid.
func fillCloudflare(to *deploy.Config, getenv func(string) string) error {
	to.AccountID = cmp.Or(to.AccountID, getenv(deploy.EnvAccount))
	if to.AccountID == "" {
		return nil
	}
	to.Token, to.BaseURL = sandbox.Secret(getenv(deploy.EnvToken)), getenv(deploy.EnvURL)
	if to.Token == "" {
		return sandbox.Errorf(sandbox.Invalid, "account %s of Cloudflare is named, and %s has no token: set it, or name no account", to.AccountID, deploy.EnvToken)
	}
	return nil
}
