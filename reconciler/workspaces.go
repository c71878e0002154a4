package reconciler

import (
	"cmp"
	"os"
	"path/filepath"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/host"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/location"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gitmirror"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Workspaces are the settings of Git workspaces.
type Workspaces struct {
	// Allow lists the hosts that workspaces may be fetched from; empty means none.
	Allow []string
	// Dir is the directory of the mirrors. Empty means a directory beside a SQLite ledger, and the user's cache
	// directory for PostgreSQL.
	Dir string
	// KnownHosts is a file with the keys of ssh servers; empty means none beside those of environments.
	KnownHosts string
	// Proxy and CAFile are as in gitmirror.Config.
	Proxy, CAFile string
}

// store returns the mirrors of repositories on servers and on this machine, nil if neither a host nor a directory is
// allowed. Errors: Invalid.
func (w Workspaces) store(ledgerURL string, machine *host.Host) (*gitmirror.Store, error) {
	if len(w.Allow) == 0 && !machine.HasDirectories() {
		return nil, nil
	}
	dir := cmp.Or(w.Dir, location.MirrorDir(ledgerURL))
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, sandbox.Errorf(sandbox.Invalid, "--workspace-dir: name a directory for mirrors: %w", err)
		}
		dir = filepath.Join(cache, "sandbox-reconciler", "mirrors")
	}
	return gitmirror.New(gitmirror.Config{Dir: dir, Allow: w.Allow, Host: machine, KnownHosts: w.KnownHosts,
		Proxy: w.Proxy, CAFile: w.CAFile})
}
