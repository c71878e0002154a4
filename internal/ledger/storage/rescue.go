package storage

import (
	"errors"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/private"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/wholefile"
)

// rescue saves this process's committed data from files that are gone, and returns the new file.
func (s *Store) rescue(path string) (file string, err error) {
	file = path + ".rescued-" + s.now().UTC().Format("20060102T150405.000Z")
	if err := private.Touch(file); err != nil {
		return "", err
	}
	if err := s.writes.Exec("VACUUM INTO ?", file).Error; err != nil {
		return "", errors.Join(err, private.Remove(file))
	}
	return file, wholefile.Sync(file)
}

// logRescue saves data that would be lost with this process, and logs where it is.
func (s *Store) logRescue(path string) {
	file, err := s.rescue(path)
	if err != nil {
		s.log.Error("ledger: committed data could not be saved; while this program runs, its open files in "+
			"/proc/PID/fd still hold it", "error", err)
		return
	}
	s.log.Error("ledger: committed data is saved; stop this program, remove the rest of "+path+
		" with its -wal and -shm, and move the saved file there", "file", file)
}
