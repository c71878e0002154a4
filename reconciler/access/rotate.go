package access

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Rotate adds a new secret at the top of a file. It returns the new secret and all secrets of the file. The previous
// secrets stay valid for the overlap, and expired ones are removed. Comments, owner and mode stay. The file is replaced
// atomically. Errors: Invalid, Unavailable.
func Rotate(ctx context.Context, file string, overlap time.Duration,
	now time.Time) (text string, secrets webhook.Secrets, err error) {
	if overlap < 0 {
		return "", nil, sandbox.Errorf(sandbox.Invalid, "the overlap %s is negative", overlap)
	}
	if file, err = filepath.EvalSymlinks(file); err != nil {
		return "", nil, sandbox.Errorf(sandbox.Invalid,
			"finding the file of webhook secrets: %w; create one with serve --generate-credentials", err)
	}
	lock := flock.New(file+".lock", flock.SetPermissions(0o600))
	if _, err := lock.TryLockContext(ctx, 20*time.Millisecond); err != nil {
		return "", nil, sandbox.Errorf(sandbox.Unavailable, "locking %s: %w", file, err)
	}
	defer func() { _ = lock.Close() }() // the exit of the process releases it too
	if _, err := LoadSecrets(file); err != nil {
		return "", nil, err
	}
	old, err := ReadPrivate(file)
	if err != nil {
		return "", nil, err
	}
	text = webhook.NewSecret()
	if err := replace(file, rotated(old, text, overlap, now.UTC().Truncate(time.Second))); err != nil {
		return "", nil, sandbox.Errorf(sandbox.Unavailable, "writing %s, which is unchanged: %w", file, err)
	}
	secrets, err = LoadSecrets(file)
	return text, secrets, err
}

// rotated returns the text of a valid file with a new secret at the top.
func rotated(old, text string, overlap time.Duration, now time.Time) string {
	var b strings.Builder
	first := text + " since=" + now.Format(time.RFC3339) + "\n"
	for line := range strings.Lines(old) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			b.WriteString(strings.TrimRight(line, "\n") + "\n")
			continue
		}
		b.WriteString(first)
		first = ""
		secret, err := parseSecretLine(words)
		if err != nil || secret.Ended(now) {
			continue
		}
		b.WriteString(words[0])
		if !secret.Since.IsZero() {
			b.WriteString(" since=" + secret.Since.Format(time.RFC3339))
		}
		if end := now.Add(overlap); secret.NotAfter.IsZero() || secret.NotAfter.After(end) {
			secret.NotAfter = end
		}
		b.WriteString(" not_after=" + secret.NotAfter.Format(time.RFC3339) + "\n")
	}
	return b.String()
}

// replace replaces the text of a file atomically.
func replace(file, text string) (err error) {
	was, err := os.Stat(file)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*") // readable only by its owner
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreAbsent(os.Remove(f.Name())))
		}
	}()
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Chmod(was.Mode().Perm()), copyOwner(f, was), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
