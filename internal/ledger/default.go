package ledger

import (
	"net/url"
	"os"
	"path"
	"path/filepath"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// StateDir is where a user's ledger and its reconciler's credentials are kept unless told
// otherwise: $XDG_STATE_HOME/terraform-provider-sandbox, or ~/.local/state in its place.
// Errors: Invalid when the user has no home directory.
func StateDir() (string, error) {
	base := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(base) { // the XDG specification has relative paths ignored
		home, err := os.UserHomeDir()
		if err != nil {
			return "", sandbox.Errorf(sandbox.Invalid, "finding a place for the ledger: %w; name one, as sqlite:///absolute/path/ledger.db", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(base, "terraform-provider-sandbox"), nil
}

// DefaultURL is the URL of the user's own embedded ledger. Provider and reconciler have the same.
// Errors: as StateDir.
func DefaultURL() (string, error) {
	dir, err := StateDir()
	if err != nil {
		return "", err
	}
	return (&url.URL{Scheme: "sqlite", Path: filepath.Join(dir, "ledger.db")}).String(), nil
}

// DefaultStateURL is where the state of sandboxes is kept unless told otherwise: in the directory
// `state` beside an embedded ledger. Beside a PostgreSQL it is nowhere (""): its reconcilers run on
// several machines, and state on the disk of one of them would be lost to the others.
func DefaultStateURL(ledgerURL string) string {
	u, err := parseURL(ledgerURL)
	if err != nil || u.Scheme != "sqlite" {
		return ""
	}
	return (&url.URL{Scheme: "file", Path: path.Join(path.Dir(u.Path), "state")}).String()
}
