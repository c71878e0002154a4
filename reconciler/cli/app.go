package cli

import (
	"cmp"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
)

// Environment variables that replace --url and --token-file.
const (
	envURL   = "SANDBOX_RECONCILER_URL"
	envToken = "SANDBOX_RECONCILER_TOKEN" // #nosec G101 -- the name of a variable
)

// app holds what the commands share: their surroundings, how to reach the reconciler, and how to print.
type app struct {
	name   string
	now    func() time.Time
	width  func(io.Writer) int
	getenv func(string) string

	url, tokenFile, caFile, context string
	output                          string
	quiet                           bool
}

func newApp(c Config) *app {
	a := &app{name: c.Name, now: c.Now, width: c.Columns, getenv: c.Getenv}
	if a.name == "" {
		a.name = "sandbox"
	}
	if a.now == nil {
		a.now = time.Now
	}
	if a.getenv == nil {
		a.getenv = os.Getenv
	}
	return a
}

// remote adds the shared flags to commands that ask a reconciler, and shows how long they wait for it.
func (a *app) remote(commands ...*cobra.Command) []*cobra.Command {
	for _, command := range commands {
		f := command.PersistentFlags()
		a.connectionFlags(f)
		a.outputFlags(f)
		a.completeShared(command)
		each(command, func(cmd *cobra.Command) { showWaiting(cmd, a.name) })
	}
	return commands
}

func each(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, below := range cmd.Commands() {
		each(below, do)
	}
}

func (a *app) connectionFlags(f *pflag.FlagSet) {
	f.StringVar(&a.context, "context", "", "`name` of a context of login (default: the current one)")
	f.StringVar(&a.url, "url", "", "`URL` of the reconciler (default: $"+envURL+", then the context's)")
	f.StringVar(&a.tokenFile, "token-file", "",
		"`file` with the bearer token, alone or in the format of serve (default: $"+envToken+", then the context's)")
	f.StringVar(&a.caFile, "ca-file", "",
		"PEM `file` of the authority of the reconciler's certificate (default: the context's, then this machine's)")
}

func (a *app) outputFlags(f *pflag.FlagSet) {
	f.StringVarP(&a.output, "output", "o", outputTable, "table, wide, json, yaml or name")
	f.BoolVarP(&a.quiet, "quiet", "q", false, "print ids only, as -o name")
}

func (a *app) checkOutput() error {
	if !slices.Contains(outputs, a.output) {
		return usage("--output must be table, wide, json, yaml or name, not %q", a.output)
	}
	if a.quiet {
		a.output = outputName
	}
	return nil
}

// connect returns a client of the reconciler.
func (a *app) connect(cmd *cobra.Command) (*client.Client, error) {
	to, err := a.target()
	if err != nil {
		return nil, err
	}
	if to.Token == "" {
		return nil, usage("no token: run %s login, or set --token-file or %s", a.name, envToken)
	}
	return a.newClient(cmd, to, client.Config{Token: to.Token})
}

// newClient returns a client of a reconciler. c has the credentials.
func (a *app) newClient(cmd *cobra.Command, to target, c client.Config) (*client.Client, error) {
	if err := a.checkOutput(); err != nil {
		return nil, err
	}
	if to.URL == "" {
		return nil, usage("no reconciler URL: run %s login, or set --url or %s", a.name, envURL)
	}
	var err error
	if c.TLS, err = trusting(to.CAFile); err != nil {
		return nil, err
	}
	c.URL, c.UserAgent = to.URL, "sandbox "+cmd.Name()
	return client.New(c)
}

// connectTo returns a client and the id of a lease, which the user may write in the short form.
func (a *app) connectTo(cmd *cobra.Command, lease string) (*client.Client, string, error) {
	service, err := a.connect(cmd)
	if err != nil {
		return nil, "", err
	}
	id, err := leaseID(cmd.Context(), service, lease)
	return service, id, err
}

// target is a reconciler and the credentials for it.
type target struct{ URL, Token, CAFile string }

// target says which reconciler is asked, and with which token.
func (a *app) target() (target, error) {
	var env, context target
	if a.context == "" {
		env = target{URL: a.getenv(envURL), Token: a.getenv(envToken)}
	}
	if a.url == "" && env.URL == "" || a.context != "" {
		saved, err := a.savedTarget()
		if err != nil {
			return target{}, err
		}
		context = saved
	}
	to := context
	if url := cmp.Or(a.url, env.URL); url != "" && url != to.URL {
		to = target{URL: url} // a context's token is for its URL alone
	}
	if env.Token != "" {
		to.Token = env.Token
	}
	if a.tokenFile != "" {
		token, err := access.ReadToken(a.tokenFile)
		if err != nil {
			return target{}, err
		}
		to.Token = token
	}
	if a.caFile != "" {
		to.CAFile = a.caFile
	}
	return to, nil
}
