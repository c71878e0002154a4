package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const presenceSuffix = ".open"

// presenceFile is the file that a process locks while it has the ledger open.
func presenceFile(path, process string) string { return path + "." + process + presenceSuffix }

// ShowProcess proves that this process lives, until leave is called. Errors: Unavailable.
func ShowProcess(path, process string) (leave func() error, err error) {
	file := presenceFile(path, process)
	opening := file + "ing" // renamed once it is locked: an unlocked file would mean a dead process
	lock := flock.New(opening, flock.SetPermissions(0o600))
	locked, err := lock.TryLock()
	if err == nil && !locked {
		err = errors.New("another program locked it")
	}
	if err == nil {
		err = os.Rename(opening, file)
	}
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "opening ledger %s: locking %s: %w", path, file, err)
	}
	return func() error {
		err := os.Remove(file)
		if errors.Is(err, fs.ErrNotExist) { // deleted together with the ledger
			err = nil
		}
		return errors.Join(err, lock.Close())
	}, nil
}

// EndedProcesses returns the processes that had a ledger open and ended without closing it. Call forget once nothing
// of theirs is left. Errors: Internal.
func EndedProcesses(path string) (dead []string, forget func(), err error) {
	files, err := filepath.Glob(escapeGlob(path) + ".*" + presenceSuffix)
	if err != nil {
		return nil, nil, sandbox.Errorf(sandbox.Internal, "looking for processes beside ledger %s: %w", path, err)
	}
	var locks []*flock.Flock
	for _, file := range files {
		lock := flock.New(file, flock.SetFlag(os.O_RDWR)) // do not recreate a file that was removed meanwhile
		if locked, err := lock.TryLock(); err != nil || !locked {
			_ = lock.Close() // the process lives, or has just closed the ledger
			continue
		}
		locks = append(locks, lock)
		dead = append(dead, strings.TrimSuffix(strings.TrimPrefix(file, path+"."), presenceSuffix))
	}
	return dead, func() {
		for _, lock := range locks {
			_ = errors.Join(os.Remove(lock.Path()), lock.Close()) // the next check finds it again
		}
	}, nil
}

// escapeGlob makes a path match only itself.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
