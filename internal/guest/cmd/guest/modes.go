//go:build linux

package main

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
)

// modes are those of the directories in memory. They are mounted with them, but runtimes put the modes of the image's
// own directories in their place.
var modes = map[string]fs.FileMode{
	"/tmp":           fs.ModeSticky | 0o777,
	"/run":           0o755,
	guest.SecretsDir: 0o700,
}

// restoreModes gives the directories their modes where they belong to this user, as on Docker. A directory that
// belongs to another user is not one that was mounted for this sandbox.
func restoreModes(modes map[string]fs.FileMode) error {
	for dir, mode := range modes {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() {
			continue
		}
		const settable = fs.ModePerm | fs.ModeSticky | fs.ModeSetuid | fs.ModeSetgid
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok || int(stat.Uid) != os.Getuid() || info.Mode()&settable == mode {
			continue
		}
		if err := os.Chmod(dir, mode); err != nil {
			return fmt.Errorf("restore the mode of %s: %w", dir, err)
		}
	}
	return nil
}
