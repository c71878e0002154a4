// Package login has the commands that save, choose and forget the reconcilers of a user.
package login

import (
	"bufio"
	"cmp"
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
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/contexts"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/terminal"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Commands returns the commands context, login and logout.
func Commands(c *console.Console) []*cobra.Command {
	return []*cobra.Command{context(c), login(c), logout(c)}
}

func login(c *console.Console) *cobra.Command {
	var (
		to        contexts.Context
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
		Args: console.Exactly("url"),
		RunE: func(cmd *cobra.Command, args []string) error {
			saved, err := contexts.Read(c.Getenv)
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
					return exit.Usagef("--ca-file: %w", err)
				}
			}
			if to.Token, err = readLoginToken(cmd, tokenFile); err != nil {
				return err
			}
			if err := verify(c, cmd, to); err != nil {
				return err
			}
			saved.Put(to)
			saved.Current = to.Name
			if err := saved.Write(c.Getenv); err != nil {
				return err
			}
			cmd.PrintErrf("Logged in to %s as context %s. %s logout forgets the token.\n", to.URL, to.Name, c.Name)
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

// checkLoginURL rejects URLs that no reconciler can have, and URLs over which a token would cross the network in plain
// text. Errors: Invalid.
func checkLoginURL(text string, insecure bool) error {
	u, socket, err := client.ParseURL(text)
	if err != nil {
		return err
	}
	if u.Scheme != "http" || socket != "" || insecure || u.Hostname() == "localhost" {
		return nil
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsLoopback() {
		return nil
	}
	return exit.Usagef("%s: the token would cross the network in plain text: use https://, or --insecure", text)
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
		return "", exit.Usagef("reading the token from standard input: %w", cmp.Or(err, errors.New("it is empty")))
	}
	return token, nil
}

// verify checks that the reconciler accepts the token. A token without the right to read is valid too.
func verify(c *console.Console, cmd *cobra.Command, to contexts.Context) error {
	c.Output = console.Table
	service, err := c.Client(cmd, console.Target{URL: to.URL, Token: to.Token, CAFile: to.CAFile},
		client.Config{Token: to.Token})
	if err != nil {
		return err
	}
	stop := terminal.Progress(cmd, "asking "+to.URL)
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

func logout(c *console.Console) *cobra.Command {
	return &cobra.Command{
		Use:   "logout [context]",
		Short: "Forget the token of the current context, or of the named one",
		Long: `Forget the URL and the token of the current context, or of the named one. The token stays valid for others
who have it: token revoke ends it.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return exit.Usagef("%s takes at most one argument, a context; see --help", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			saved, err := contexts.Read(c.Getenv)
			if err != nil {
				return err
			}
			name := saved.Current
			if len(args) == 1 {
				name = args[0]
			}
			if name == "" {
				return exit.Usagef("there is no current context: name the one to forget; context list shows them")
			}
			if _, err := saved.Find(name); err != nil {
				return err
			}
			saved.Remove(name)
			if saved.Current == name {
				saved.Current = ""
			}
			if err := saved.Write(c.Getenv); err != nil {
				return err
			}
			cmd.PrintErrf("Forgot context %s.\n", name)
			return nil
		},
		ValidArgsFunction: c.OfferContexts,
	}
}
