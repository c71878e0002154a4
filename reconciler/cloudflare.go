package reconciler

import (
	"github.com/spf13/pflag"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// addCloudflareFlags adds the flags of the account that environments with backend = "cloudflare" run on.
func addCloudflareFlags(f *pflag.FlagSet, to *deploy.Config) {
	f.StringVar(&to.AccountID, "cloudflare-account", "", "`id` of the Cloudflare account that sandboxes may run on, or "+deploy.EnvAccount+
		"; its token comes from "+deploy.EnvToken+" (default: none)")
}

// fillCloudflare completes the settings of an account from the environment. A token or an account that only the
// environment has, without the other, belongs to another program. Errors: Invalid.
func fillCloudflare(to *deploy.Config, getenv func(string) string) error {
	named := to.AccountID
	to.FillIn(getenv)
	switch {
	case named != "" && to.Token == "":
		return sandbox.Errorf(sandbox.Invalid, "--cloudflare-account %s: %s has no token: set it", named, deploy.EnvToken)
	case to.AccountID == "" || to.Token == "":
		*to = deploy.Config{}
	}
	return nil
}
