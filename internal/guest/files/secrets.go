//go:build linux

package files

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// storeSecrets replaces the content of the secrets directory, which is in memory, with the files of a tar
// stream. Each file appears atomically. An incomplete stream changes nothing.
func (w Worker) storeSecrets(ctx context.Context, in io.Reader) error {
	secrets, err := readSecrets(in)
	if err != nil {
		return err
	}
	dir, err := openAt(unix.AT_FDCWD, w.base+sandbox.SecretsDir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	// Unwanted files are removed first: sandbox code may have filled the directory.
	if err := clearSecrets(ctx, dir, secrets); err != nil {
		return err
	}
	for name, value := range secrets {
		if err := storeSecret(ctx, dir, name, value); err != nil {
			return fmt.Errorf("secret %s: %w", name, err)
		}
	}
	return nil
}

// clearSecrets removes everything except the wanted files.
func clearSecrets(ctx context.Context, dir int, wanted map[string][]byte) error {
	fd, err := openAt(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	var self unix.Stat_t
	if err := unix.Fstat(fd, &self); err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	walk := walker{force: true, rescan: true, visit: func(e entry) (bool, error) {
		if _, ok := wanted[e.name]; ok && e.isRegular() && e.parent == inodeOf(&self) {
			return false, nil
		}
		return removeEntry(e)
	}}
	return walk.walk(ctx, fd)
}

// endMark is the size of the end of a tar stream, in bytes.
const endMark = 1024

func readSecrets(in io.Reader) (map[string][]byte, error) {
	secrets := map[string][]byte{}
	counted := &counter{r: in}
	for entries := tar.NewReader(counted); ; {
		before := counted.n
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			if counted.n-before < endMark { // the tar reader accepts a missing end mark
				return nil, errors.New("the stream of secrets is incomplete; nothing was changed")
			}
			return secrets, nil
		}
		if err != nil {
			return nil, refuse("not a tar stream: %v", err)
		}
		if h.Typeflag != tar.TypeReg || h.Size > sandbox.MaxSecretBytes || !isSecretName(h.Name) ||
			len(secrets) == sandbox.MaxSecrets {
			return nil, refuse("%s is not a valid secret", h.Name)
		}
		if secrets[h.Name], err = io.ReadAll(entries); err != nil {
			return nil, err
		}
	}
}

func isSecretName(name string) bool {
	return filepath.IsLocal(name) && name == filepath.Base(name) && !strings.HasPrefix(name, ".")
}

// counter counts the bytes read.
type counter struct {
	r io.Reader
	n int64
}

// Read implements io.Reader.
func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// maxTries limits how often sandbox code may put a directory in a secret's place.
const maxTries = 20

func storeSecret(ctx context.Context, dir int, name string, value []byte) error {
	for try := 1; ; try++ {
		err := replace(dir, name, 0o400, func(f io.Writer) error {
			_, err := f.Write(value)
			return err
		})
		if !errors.Is(err, unix.EISDIR) || try == maxTries {
			return err
		}
		if err := removeAll(ctx, dir, name); err != nil && !errors.Is(err, unix.ENOTDIR) {
			return err
		}
	}
}
