package cli

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (a *app) login() *cobra.Command {
	var (
		to        savedContext
		tokenFile string
		insecure  bool
	)
	cmd := &cobra.Command{
		Use:   "login <url>",
		Short: "Save the URL and the token of a reconciler for the next commands",
		Long: `Save the URL and the token of a reconciler as a context, and make it the current one. The token comes from
--token-file, from standard input, or from a prompt that does not show it. The command asks the reconciler whether the
token is valid before it saves anything.

Contexts are in $XDG_CONFIG_HOME/sandbox/contexts.json, by default in ~/.config. Only you can read the file.`,
		Example: `  sandbox login https://sandboxes.example.com
  sandbox login https://10.0.0.7:8787 --name lab --ca-file ca.pem <token`,
		Args: exactly("url"),
		RunE: func(cmd *cobra.Command, args []string) error {
			saved, err := a.readContexts()
			if err != nil {
				return err
			}
			to.URL = strings.TrimRight(args[0], "/")
			if err := checkLoginURL(to.URL, insecure); err != nil {
				return err
			}
			if to.Name == "" {
				to.Name = defaultContextName(to.URL)
			}
			if to.CAFile != "" {
				if to.CAFile, err = filepath.Abs(to.CAFile); err != nil {
					return usage("--ca-file: %w", err)
				}
			}
			if to.Token, err = readLoginToken(cmd, tokenFile); err != nil {
				return err
			}
			if err := a.verify(cmd, to); err != nil {
				return err
			}
			saved.put(to)
			saved.Current = to.Name
			if err := a.writeContexts(saved); err != nil {
				return err
			}
			cmd.PrintErrf("Logged in to %s as context %s. %s logout forgets the token.\n", to.URL, to.Name, a.name)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&to.Name, "name", "", "`name` of the context (default: the host of the URL)")
	f.StringVar(&tokenFile, "token-file", "", "`file` with the token, alone or in the format of serve")
	f.StringVar(&to.CAFile, "ca-file", "", "PEM `file` of the authority of the reconciler's certificate "+
		"(default: the authorities that this machine trusts)")
	f.BoolVar(&insecure, "insecure", false, "send the token to another machine over plain HTTP")
	return cmd
}

// checkLoginURL refuses URLs over which a token would cross the network in plain text. Errors: Invalid.
func checkLoginURL(text string, insecure bool) error {
	u, err := url.Parse(text)
	if err != nil {
		return usage("%w", err)
	}
	if u.Scheme != "http" || insecure || u.Hostname() == "localhost" {
		return nil // the client checks the rest
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsLoopback() {
		return nil
	}
	return usage("%s: the token would cross the network in plain text: use https://, or --insecure", text)
}

// defaultContextName returns the host of a URL, or the file of a socket.
func defaultContextName(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	if u.Host == "" {
		return u.Path
	}
	return u.Host
}

// readLoginToken reads the token of login. Errors: Invalid.
func readLoginToken(cmd *cobra.Command, file string) (token string, err error) {
	in, isFile := cmd.InOrStdin().(*os.File)
	switch {
	case file != "":
		return access.ReadToken(file)
	case isFile && term.IsTerminal(int(in.Fd())):
		cmd.PrintErr("Token: ")
		var text []byte
		text, err = term.ReadPassword(int(in.Fd()))
		cmd.PrintErrln()
		token = string(text)
	default:
		token, err = bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	if token = strings.TrimSpace(token); err != nil || token == "" {
		return "", usage("reading the token from standard input: %w", cmp.Or(err, errors.New("it is empty")))
	}
	return token, nil
}

// verify asks the reconciler whether it knows the token. A token may lack the right to read, and is valid even so.
func (a *app) verify(cmd *cobra.Command, to savedContext) error {
	a.output = outputTable
	service, err := a.newClient(cmd, target{to.URL, to.Token, to.CAFile}, client.Config{Token: to.Token})
	if err != nil {
		return err
	}
	stop := Progress(cmd, "asking "+to.URL)
	_, err = service.Ledger(cmd.Context())
	stop()
	if sandbox.CodeOf(err) == sandbox.Forbidden {
		return nil
	}
	if err != nil {
		return fmt.Errorf("nothing was saved: %w", err)
	}
	return nil
}

func (a *app) logout() *cobra.Command {
	return &cobra.Command{
		Use:   "logout [context]",
		Short: "Forget the token of the current context, or of the named one",
		Long: `Forget the URL and the token of the current context, or of the named one. The token stays valid for others
who have it: token revoke ends it.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage("%s takes at most one argument, a context; see --help", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			saved, err := a.readContexts()
			if err != nil {
				return err
			}
			name := saved.Current
			if len(args) == 1 {
				name = args[0]
			}
			if name == "" {
				return usage("there is no current context: name the one to forget; context list shows them")
			}
			if _, err := saved.find(name); err != nil {
				return err
			}
			saved.remove(name)
			if saved.Current == name {
				saved.Current = ""
			}
			if err := a.writeContexts(saved); err != nil {
				return err
			}
			cmd.PrintErrf("Forgot context %s.\n", name)
			return nil
		},
		ValidArgsFunction: a.offerContexts,
	}
}

// trusting returns how TLS checks the reconciler's certificate: against the authorities in a PEM file, or, without
// one, against those that this machine trusts. Errors: Invalid.
func trusting(caFile string) (*tls.Config, error) {
	if caFile == "" {
		return nil, nil //nolint:nilnil // the client's own default
	}
	text, err := os.ReadFile(caFile) // #nosec G304 -- the user names the file
	if err != nil {
		return nil, usage("reading the authority of the reconciler's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, usage("the authority of the reconciler's certificate: %s holds no certificate in PEM form", caFile)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, nil
}
