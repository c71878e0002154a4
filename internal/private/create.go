package private

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/wholefile"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Create creates a file, for its owner only, that is complete or does not exist. It reserves the name first, so that
// it never replaces a file, and calls write with the name of an empty temporary file. Errors: Conflict if the file
// exists; Invalid if its directory does not, or does not let the user write; Unavailable; those of write.
func Create(file string, write func(temporary string) error) (err error) {
	// #nosec G304 -- the operator names the file
	reserved, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return sandbox.Errorf(sandbox.Conflict, "%s exists and is not overwritten: use another file name, or move it away",
			file)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrPermission):
		return sandbox.Errorf(sandbox.Invalid, "creating %s: %w: name a file in a directory that exists and that you may "+
			"write", file, errors.Unwrap(err))
	case err != nil:
		return sandbox.Errorf(sandbox.Unavailable, "creating %s: %w", file, err)
	}
	temporary := file + ".partial"
	defer func() {
		_ = reserved.Close() // nothing was written
		if err != nil {
			err = errors.Join(err, Remove(temporary, file))
		}
	}()
	if err := Remove(temporary); err != nil { // left by a program that was killed
		return err
	}
	if err := Touch(temporary); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "creating %s: %w", temporary, err)
	}
	if err := write(temporary); err != nil {
		return err
	}
	if err := errors.Join(wholefile.Sync(temporary), os.Rename(temporary, file),
		wholefile.Sync(filepath.Dir(file))); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "writing %s: %w", file, err)
	}
	return nil
}

// Touch creates a file of mode 0600, and its directory, before a library creates them with other modes. It leaves the
// content of an existing file.
func Touch(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) // #nosec G304 -- the operator names the file
	if err != nil {
		return err
	}
	return f.Close()
}

// Remove removes files; absent is success. Errors: Unavailable.
func Remove(files ...string) error {
	for _, file := range files {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return sandbox.Errorf(sandbox.Unavailable, "removing %s: %w", file, err)
		}
	}
	return nil
}
