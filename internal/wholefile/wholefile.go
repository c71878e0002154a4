// Package wholefile writes files that no reader sees in part. Only one writer may write a file at a time.
package wholefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Write creates or replaces a file. The file has the old or the new content, even if the program is killed.
func Write(path string, content []byte, mode fs.FileMode) error {
	return write(path, content, mode, func(*os.File) error { return nil })
}

// WriteDurable is Write, and the content survives a crash of the machine once it has returned.
func WriteDurable(path string, content []byte, mode fs.FileMode) error {
	if err := write(path, content, mode, (*os.File).Sync); err != nil {
		return err
	}
	return Sync(filepath.Dir(path))
}

// Sync makes the content of a file, or the names in a directory, durable.
func Sync(path string) error {
	f, err := os.Open(path) // #nosec G304 -- the caller names the file
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func write(path string, content []byte, mode fs.FileMode, sync func(*os.File) error) error {
	// The name is derived from the file's, so the next write replaces what a killed program left.
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = sync(f)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
