//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

const (
	leaseFile = guest.LeaseDir + "/" + wire.LeaseFile
	// leasePause is how often process 1 looks for the file. While it looks, the sandbox mostly sleeps.
	leasePause = 5 * time.Millisecond
)

// readLease returns the lease that the sandbox was given, nil before. A file that is still being
// written is not there yet.
func readLease() *wire.Lease {
	b, err := os.ReadFile(leaseFile)
	if err != nil {
		return nil
	}
	var l wire.Lease
	if json.Unmarshal(b, &l) != nil || l.Deadline.IsZero() {
		return nil
	}
	if l.Ends.At.IsZero() { // a reconciler of an earlier release wrote it
		l.Ends = parseEnds("", l.Deadline)
	}
	return &l
}

// awaitLease waits for the sandbox's lease and takes it over, before any command runs. It returns
// false when the sandbox is stopped first.
func awaitLease(stop <-chan os.Signal, timer int, ends wire.Ends) bool {
	l := readLease()
	for ; l == nil; l = readLease() {
		select {
		case <-stop:
			return false
		case <-time.After(leasePause):
		}
	}
	now := readClocks()
	if left := now.left(l.Ends); left < now.left(ends) { // never later than what it began with
		setTimer(timer, left)
	}
	if err := writeConfig(l.Config); err != nil {
		fatal("write %s: %v", configFile, err)
	}
	become(leasedName)
	return true
}

// commandEnv returns the variables of a command: in a sandbox of a pool, those of its lease as well.
func commandEnv() ([]string, error) {
	l := readLease()
	if l == nil {
		if _, err := os.Stat(leaseFile); !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s cannot be read", leaseFile)
		}
		return os.Environ(), nil
	}
	for name, value := range l.Env {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	return os.Environ(), nil
}
