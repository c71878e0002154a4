// Package contexts keeps the reconcilers that a user logged in to, and how to reach them, in a file of that user.
package contexts

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/private"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Environment variables that override a context.
const (
	URLVariable   = "SANDBOX_RECONCILER_URL"
	TokenVariable = "SANDBOX_RECONCILER_TOKEN" // #nosec G101 -- the name of a variable
)

// Saved is the file of contexts: $XDG_CONFIG_HOME/sandbox/contexts.json, by default in ~/.config. Only its
// owner may read it, because it holds tokens.
type Saved struct {
	Current  string    `json:"current"`
	Contexts []Context `json:"contexts"`
}

// Context is a reconciler and how to reach it.
type Context struct {
	Name  string `json:"name"`
	URL   string `json:"url"`
	Token string `json:"token"`
	// CAFile is the absolute path of a PEM file with the authority of the reconciler's certificate; "" means the
	// authorities that this machine trusts.
	CAFile string `json:"ca_file,omitempty"`
}

// Find returns the context with a name. Errors: Invalid if there is none.
func (s *Saved) Find(name string) (Context, error) {
	for _, c := range s.Contexts {
		if c.Name == name {
			return c, nil
		}
	}
	return Context{}, exit.Usagef("there is no context %q; context list shows those of this user, login saves one", name)
}

// Put adds a context, or replaces the one with its name.
func (s *Saved) Put(c Context) {
	s.Remove(c.Name)
	s.Contexts = append(s.Contexts, c)
	slices.SortFunc(s.Contexts, func(a, b Context) int { return cmp.Compare(a.Name, b.Name) })
}

// Remove removes the context with a name, if there is one.
func (s *Saved) Remove(name string) {
	s.Contexts = slices.DeleteFunc(s.Contexts, func(c Context) bool { return c.Name == name })
}

// fileOf returns the path of the file of contexts. Errors: Invalid if the user has no home.
func fileOf(getenv func(string) string) (string, error) {
	base := getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(base) { // the XDG specification says to ignore relative paths
		home := cmp.Or(getenv("HOME"), getenv("USERPROFILE"))
		if home == "" {
			return "", exit.Usagef("finding the contexts of login: neither XDG_CONFIG_HOME nor HOME is set; "+
				"set --url and --token-file, or %s and %s", URLVariable, TokenVariable)
		}
		base = filepath.Join(home, ".config")
	}
	return filepath.Join(base, "sandbox", "contexts.json"), nil
}

// Read returns the contexts of the user whose environment getenv reads; none without a file. Errors: Invalid.
func Read(getenv func(string) string) (s Saved, err error) {
	file, err := fileOf(getenv)
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
		return s, exit.Usagef("reading the contexts of login: %w", err)
	}
	text, err := os.ReadFile(file) // #nosec G304 -- the user's own file
	if err != nil {
		return s, exit.Usagef("reading the contexts of login: %w", err)
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&s); err != nil {
		return s, exit.Usagef("reading the contexts of login in %s: %w; fix the file, or remove it and log in again", file,
			err)
	}
	return s, nil
}

// Write replaces the file of contexts atomically. Errors: Invalid if the user has no home; Failed.
func (s Saved) Write(getenv func(string) string) (err error) {
	file, err := fileOf(getenv)
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
