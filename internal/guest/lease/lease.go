//go:build linux

// Package lease holds what process 1 and the broker share about the lease of a pool's sandbox.
package lease

import (
	"fmt"
	"os"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// File is where process 1 stores the lease.
const File = guest.LeaseDir + "/" + wire.LeaseFile

// SetEnviron sets variables of this process, which commands inherit.
func SetEnviron(env map[string]string) error {
	for name, value := range env {
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}
