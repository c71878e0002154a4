//go:build linux

package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
)

// maxSecret bounds one secret, in bytes; the executor sends less.
const maxSecret = 1 << 20

// storeSecrets makes the files of a tar stream the only ones in the directory of secrets, which lies
// in memory. Each appears whole.
func storeSecrets(in io.Reader) error {
	dir, err := os.OpenRoot(guest.SecretsDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	secrets, err := readSecrets(in)
	if err != nil {
		return err
	}
	// What is not wanted goes first: sandboxed code may have filled the directory.
	have, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return err
	}
	for _, entry := range have {
		if _, wanted := secrets[entry.Name()]; !wanted || !entry.Type().IsRegular() {
			if err := dir.RemoveAll(entry.Name()); err != nil {
				return err
			}
		}
	}
	for name, value := range secrets {
		if err := storeSecret(dir, name, value); err != nil {
			return fmt.Errorf("secret %s: %w", name, err)
		}
	}
	return nil
}

func readSecrets(in io.Reader) (map[string][]byte, error) {
	secrets := map[string][]byte{}
	for entries := tar.NewReader(in); ; {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return secrets, nil
		}
		if err != nil {
			return nil, refuse("not a tar stream: %v", err)
		}
		if h.Typeflag != tar.TypeReg || h.Size > maxSecret {
			return nil, refuse("%s is no secret", h.Name)
		}
		if secrets[h.Name], err = io.ReadAll(entries); err != nil {
			return nil, err
		}
	}
}

func storeSecret(dir *os.Root, name string, value []byte) error {
	const unfinished = ".unfinished"
	f, err := dir.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return err
	}
	_, err = f.Write(value)
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, dir.Remove(unfinished))
	}
	return dir.Rename(unfinished, name)
}
