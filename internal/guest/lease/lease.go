//go:build linux

// Package lease reads and applies the lease of a sandbox from a warm pool.
package lease

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

const (
	File = guest.LeaseDir + "/" + wire.LeaseFile
	// Pause is the interval at which process 1 looks for the file. A waiting sandbox is mostly asleep.
	Pause = 5 * time.Millisecond
)

// Read returns the sandbox's lease, nil if it has none yet. A partly written file does not count.
func Read() *wire.Lease {
	b, err := os.ReadFile(File)
	if err != nil {
		return nil
	}
	var l wire.Lease
	if json.Unmarshal(b, &l) != nil || l.Deadline.IsZero() {
		return nil
	}
	if l.Ends.At.IsZero() { // a reconciler of an earlier release wrote it
		l.Ends = wire.Ends{At: l.Deadline, Left: math.MaxInt64}
	}
	return &l
}

// Environ returns the variables of a command. In a sandbox of a pool they include those of the lease.
func Environ() ([]string, error) {
	l := Read()
	if l == nil {
		if _, err := os.Stat(File); !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s cannot be read", File)
		}
		return os.Environ(), nil
	}
	if err := SetEnviron(l.Env); err != nil {
		return nil, err
	}
	return os.Environ(), nil
}

// SetEnviron sets variables of this process, which commands inherit.
func SetEnviron(env map[string]string) error {
	for name, value := range env {
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}
