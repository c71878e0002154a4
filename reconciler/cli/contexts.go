package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/private"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// savedContexts is the file of contexts: $XDG_CONFIG_HOME/sandbox/contexts.json, by default in ~/.config. Only its
// owner may read it, because it holds tokens.
type savedContexts struct {
	Current  string         `json:"current"`
	Contexts []savedContext `json:"contexts"`
}

// savedContext is a reconciler and how to reach it.
type savedContext struct {
	Name  string `json:"name"`
	URL   string `json:"url"`
	Token string `json:"token"`
	// CAFile is the absolute path of a PEM file with the authority of the reconciler's certificate; "" means the
	// authorities that this machine trusts.
	CAFile string `json:"ca_file,omitempty"`
}

func (s *savedContexts) find(name string) (savedContext, error) {
	for _, c := range s.Contexts {
		if c.Name == name {
			return c, nil
		}
	}
	return savedContext{}, usage("there is no context %q; context list shows those of this user, login saves one", name)
}

// put saves a context, in place of one with its name.
func (s *savedContexts) put(c savedContext) {
	s.remove(c.Name)
	s.Contexts = append(s.Contexts, c)
	slices.SortFunc(s.Contexts, func(a, b savedContext) int { return cmp.Compare(a.Name, b.Name) })
}

func (s *savedContexts) remove(name string) {
	s.Contexts = slices.DeleteFunc(s.Contexts, func(c savedContext) bool { return c.Name == name })
}

// contextsFile returns the path of the file of contexts. Errors: Invalid if the user has no home.
func (a *app) contextsFile() (string, error) {
	base := a.getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(base) { // as the XDG specification wants it
		home := cmp.Or(a.getenv("HOME"), a.getenv("USERPROFILE"))
		if home == "" {
			return "", usage("finding the contexts of login: neither XDG_CONFIG_HOME nor HOME is set; "+
				"set --url and --token-file, or %s and %s", envURL, envToken)
		}
		base = filepath.Join(home, ".config")
	}
	return filepath.Join(base, "sandbox", "contexts.json"), nil
}

// readContexts returns the contexts; there are none without a file. Errors: Invalid.
func (a *app) readContexts() (s savedContexts, err error) {
	file, err := a.contextsFile()
	if err != nil {
		return s, err
	}
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = private.Check(file, "tokens", info)
	}
	if err != nil {
		return s, usage("reading the contexts of login: %w", err)
	}
	text, err := os.ReadFile(file) // #nosec G304 -- the user's own file
	if err != nil {
		return s, usage("reading the contexts of login: %w", err)
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&s); err != nil {
		return s, usage("reading the contexts of login in %s: %w; mend the file or remove it, and log in again", file, err)
	}
	return s, nil
}

// writeContexts replaces the file of contexts atomically.
func (a *app) writeContexts(s savedContexts) (err error) {
	file, err := a.contextsFile()
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return sandbox.Errorf(sandbox.Failed, "saving the contexts of login: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".contexts.*") // readable only by its owner
	if err != nil {
		return sandbox.Errorf(sandbox.Failed, "saving the contexts of login: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return sandbox.Errorf(sandbox.Failed, "saving the contexts of login: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// savedTarget returns the reconciler of --context, or of the current context; an empty one if there is none.
func (a *app) savedTarget() (target, error) {
	saved, err := a.readContexts()
	if err != nil {
		return target{}, err
	}
	name := cmp.Or(a.context, saved.Current)
	if name == "" {
		return target{}, nil
	}
	c, err := saved.find(name)
	return target{URL: c.URL, Token: c.Token, CAFile: c.CAFile}, err
}

func (a *app) contexts() *cobra.Command {
	list := &cobra.Command{
		Use:   "list",
		Short: "List the reconcilers that you are logged in to",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.checkOutput(); err != nil {
				return err
			}
			saved, err := a.readContexts()
			if err != nil {
				return err
			}
			return a.printContexts(cmd, saved)
		},
	}
	use := &cobra.Command{
		Use:   "use <context>",
		Short: "Send the next commands to another reconciler",
		Args:  exactly("context"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.checkOutput(); err != nil {
				return err
			}
			saved, err := a.readContexts()
			if err != nil {
				return err
			}
			if _, err := saved.find(args[0]); err != nil {
				return err
			}
			saved.Current = args[0]
			if err := a.writeContexts(saved); err != nil {
				return err
			}
			return a.printContexts(cmd, saved)
		},
		ValidArgsFunction: a.offerContexts,
	}
	cmd := group("context", "List the reconcilers that you are logged in to, or change to another", list, use)
	a.outputFlags(cmd.PersistentFlags())
	complete(cmd, "output", outputs...)
	return cmd
}

// contextView is a context without its token.
type contextView struct {
	Name    string `json:"name"`
	URL     string `json:"url"`
	CAFile  string `json:"ca_file,omitempty"`
	Current bool   `json:"current"`
}

func (a *app) printContexts(cmd *cobra.Command, saved savedContexts) error {
	views := make([]contextView, len(saved.Contexts))
	for i, c := range saved.Contexts {
		views[i] = contextView{c.Name, c.URL, c.CAFile, c.Name == saved.Current}
	}
	return a.print(cmd, map[string][]contextView{"contexts": views}, func(t *table) {
		t.head(col("CONTEXT"), col("CURRENT"), flex("URL"), wide("CA FILE"))
		for _, v := range views {
			t.row(v.Name, yes(v.Current), v.URL, v.CAFile)
		}
	})
}

// offerContexts completes names of contexts.
func (a *app) offerContexts(_ *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	if saved, err := a.readContexts(); err == nil && len(args) == 0 {
		for _, c := range saved.Contexts {
			names = append(names, c.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeContexts completes --context.
func (a *app) completeContexts(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("context",
		func(cmd *cobra.Command, _ []string, text string) ([]string, cobra.ShellCompDirective) {
			return a.offerContexts(cmd, nil, text)
		})
}
