package daemon

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/location"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// settings are the settings of serve. The other commands read the same ones.
type settings struct {
	reconciler.Config
	gateway   gatewayFlags
	logFormat string
	logLevel  slog.Level
	// registryLogins is a file of the docker CLI; "" means none.
	registryLogins string
}

// complete checks the settings and fills in defaults. generate says that missing credential files are about to be
// created. Errors: Invalid.
func (s *settings) complete(generate bool) error {
	if s.logFormat != "text" && s.logFormat != "json" {
		return sandbox.Errorf(sandbox.Invalid, "--log-format must be text or json, not %q", s.logFormat)
	}
	if err := s.Validate(); err != nil {
		return err
	}
	if s.registryLogins != "" {
		var err error
		if s.Docker.Logins, err = docker.LoginsIn(s.registryLogins); err != nil {
			return sandbox.Errorf(sandbox.Invalid, "--registry-logins: %w", err)
		}
	}
	return errors.Join(s.fillIn(generate), s.gateway.fill(&s.Docker.Gateway, os.Getenv),
		fillCloudflare(&s.Cloudflare, os.Getenv))
}

// fillIn sets missing paths to the user's state directory. It sets the token file only if the file exists or is about
// to be generated.
func (s *settings) fillIn(generate bool) error {
	if s.LedgerURL != "" && s.TokenFile != "" && s.SecretFile != "" {
		return nil
	}
	dir, err := location.StateDir()
	if err != nil {
		return err
	}
	if s.LedgerURL == "" {
		if s.LedgerURL, err = location.Default(); err != nil {
			return err
		}
	}
	if s.TokenFile == "" {
		if file := filepath.Join(dir, "tokens"); generate || exists(file) {
			s.TokenFile = file
		}
	}
	if s.SecretFile == "" {
		s.SecretFile = filepath.Join(dir, "webhook-secrets")
	}
	return nil
}

// derived returns the paths that serve derives from the ledger's URL for unset settings.
func (s *settings) derived() map[string]string {
	return map[string]string{
		"secret-key-file": location.SecretKeyFile(s.LedgerURL),
		"state-url":       location.SnapshotURL(s.LedgerURL),
		"workspace-dir":   location.MirrorDir(s.LedgerURL),
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}
