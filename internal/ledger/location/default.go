package location

import (
	"net/url"
	"os"
	"path"
	"path/filepath"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// StateDir is the default directory of a user's ledger and its reconciler's credentials:
// $XDG_STATE_HOME/terraform-provider-sandbox, or the same in ~/.local/state. Errors: Invalid if the user has
// no home directory.
func StateDir() (string, error) {
	base := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(base) { // the XDG specification ignores relative paths
		home, err := os.UserHomeDir()
		if err != nil {
			return "", sandbox.Errorf(sandbox.Invalid,
				"finding a directory for the ledger: %w; set the ledger URL, such as sqlite:///absolute/path/ledger.db", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(base, "terraform-provider-sandbox"), nil
}

// Default is the URL of the user's embedded ledger, the default of both provider and reconciler. Errors:
// as StateDir.
func Default() (string, error) {
	dir, err := StateDir()
	if err != nil {
		return "", err
	}
	return (&url.URL{Scheme: "sqlite", Path: filepath.Join(dir, "ledger.db")}).String(), nil
}

// SnapshotURL is the default location of /data snapshots: the directory `state` next to an embedded
// ledger. With PostgreSQL there is none (""): its reconcilers run on several machines, and snapshots on the
// disk of one are not available to the others.
func SnapshotURL(ledgerURL string) string {
	u, err := Parse(ledgerURL)
	if err != nil || u.Scheme != "sqlite" {
		return ""
	}
	return (&url.URL{Scheme: "file", Path: path.Join(path.Dir(u.Path), "state")}).String()
}

// MirrorDir returns the default directory of Git mirrors, "" for a ledger in PostgreSQL.
func MirrorDir(ledgerURL string) string {
	u, err := Parse(ledgerURL)
	if err != nil || u.Scheme != "sqlite" {
		return ""
	}
	return path.Join(path.Dir(u.Path), "mirrors")
}
