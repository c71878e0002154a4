//go:build !windows

package snapshotstore

import (
	"errors"
	"os"
)

func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
