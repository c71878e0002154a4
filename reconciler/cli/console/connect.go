package console

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/contexts"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
)

func (c *Console) connectionFlags(f *pflag.FlagSet) {
	f.StringVar(&c.context, "context", "", "`name` of a context of login (default: the current one)")
	f.StringVar(&c.url, "url", "", "`URL` of the reconciler (default: $"+contexts.URLVariable+", then the context's)")
	f.StringVar(&c.tokenFile, "token-file", "",
		"`file` with the bearer token, alone or in the format of serve (default: $"+contexts.TokenVariable+
			", then the context's)")
	f.StringVar(&c.caFile, "ca-file", "",
		"PEM `file` of the authority of the reconciler's certificate (default: the context's, then this machine's)")
}

// Connect returns a client of the reconciler.
func (c *Console) Connect(cmd *cobra.Command) (*client.Client, error) {
	to, err := c.Target()
	if err != nil {
		return nil, err
	}
	if to.Token == "" {
		return nil, exit.Usagef("no token: run %s login, or set --token-file or %s", c.Name, contexts.TokenVariable)
	}
	return c.Client(cmd, to, client.Config{Token: to.Token})
}

// Client returns a client of a reconciler. with has the credentials.
func (c *Console) Client(cmd *cobra.Command, to Target, with client.Config) (*client.Client, error) {
	if err := c.CheckOutput(); err != nil {
		return nil, err
	}
	if to.URL == "" {
		return nil, exit.Usagef("no reconciler URL: run %s login, or set --url or %s", c.Name, contexts.URLVariable)
	}
	var err error
	if with.TLS, err = trusting(to.CAFile); err != nil {
		return nil, err
	}
	with.URL, with.UserAgent = to.URL, "sandbox "+cmd.Name()
	return client.New(with)
}

// ConnectTo returns a client and the id of a lease, which the user may write in the short form.
func (c *Console) ConnectTo(cmd *cobra.Command, lease string) (*client.Client, string, error) {
	service, err := c.Connect(cmd)
	if err != nil {
		return nil, "", err
	}
	id, err := LeaseID(cmd.Context(), service, lease)
	return service, id, err
}

// Target is a reconciler and the credentials for it.
type Target struct{ URL, Token, CAFile string }

// Target returns the reconciler to call, and the token for it.
func (c *Console) Target() (Target, error) {
	var env, context Target
	if c.context == "" {
		env = Target{URL: c.Getenv(contexts.URLVariable), Token: c.Getenv(contexts.TokenVariable)}
	}
	if c.url == "" && env.URL == "" || c.context != "" {
		saved, err := c.savedTarget()
		if err != nil {
			return Target{}, err
		}
		context = saved
	}
	to := context
	if url := cmp.Or(c.url, env.URL); url != "" && url != to.URL {
		to = Target{URL: url} // a context's token is only for its URL
	}
	if env.Token != "" {
		to.Token = env.Token
	}
	if c.tokenFile != "" {
		token, err := access.ReadToken(c.tokenFile)
		if err != nil {
			return Target{}, err
		}
		to.Token = token
	}
	if c.caFile != "" {
		to.CAFile = c.caFile
	}
	return to, nil
}

// savedTarget returns the reconciler of --context, or else of the current context; an empty one if there is none.
func (c *Console) savedTarget() (Target, error) {
	saved, err := contexts.Read(c.Getenv)
	if err != nil {
		return Target{}, err
	}
	name := cmp.Or(c.context, saved.Current)
	if name == "" {
		return Target{}, nil
	}
	found, err := saved.Find(name)
	return Target{URL: found.URL, Token: found.Token, CAFile: found.CAFile}, err
}

// trusting returns how TLS checks the reconciler's certificate: against the authorities in a PEM file, or, without
// one, against those that this machine trusts. Errors: Invalid.
func trusting(caFile string) (*tls.Config, error) {
	if caFile == "" {
		return nil, nil //nolint:nilnil // the client's own default
	}
	text, err := os.ReadFile(caFile) // #nosec G304 -- the user names the file
	if err != nil {
		return nil, exit.Usagef("reading the authority of the reconciler's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, exit.Usagef("the authority of the reconciler's certificate: %s holds no certificate in PEM form", caFile)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, nil
}
