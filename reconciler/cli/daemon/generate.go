package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// generateFiles creates the missing credential files.
func (s *settings) generateFiles() error {
	var key error
	if s.SecretKeyFile != "" {
		key = seal.Generate(s.SecretKeyFile)
	}
	return errors.Join(key,
		generateFile(s.TokenFile, "default "+access.NewToken()),
		generateFile(s.SecretFile, webhook.NewSecret()),
	)
}

// generateFile writes a credential to a new file. It leaves an existing file as it is.
func generateFile(path, line string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "creating the directory of %s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "creating %s: %w", path, err)
	}
	_, err = fmt.Fprintln(f, line)
	if err = errors.Join(err, f.Close()); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "writing %s: %w", path, err)
	}
	return nil
}
