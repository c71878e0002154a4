package templates

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/accounts"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/engine"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/relay"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Programs look up their user in /etc/passwd. An image's file cannot contain a user that is derived from the sandbox's
// id. So the relay writes the image's file plus that user into the sandbox's directory, and the sandbox mounts it over
// the image's file. A spawn needs no extra request to the engine, because an image's files are read once.

// Names of a sandbox's users: of its code and of its verifier.
const (
	userName     = "sandbox"
	verifierName = "verifier"
)

// ImageAccounts are the files of an image that name users.
type ImageAccounts struct{ passwd, group accountFile }

// accountFile is one of these files. fixed means that it stays unchanged, because it is not a regular file or is too
// large for the relay. content is empty if some users of the image may not read the file.
type accountFile struct {
	content []byte
	fixed   bool
}

// maxLineBytes limits the lines of a sandbox's users, with the longest home directory.
const maxLineBytes = 5 << 10

// maxKnownImages limits the images whose accounts are cached.
const maxKnownImages = 128

// AccountsOf returns the accounts of an environment's image. It reads each image once.
func (ts *Templates) AccountsOf(ctx context.Context, s Template) (ImageAccounts, error) {
	ts.mu.Lock()
	a, ok := ts.accounts[s.Image.ID]
	ts.mu.Unlock()
	if ok {
		return a, nil
	}
	err := ts.withImage(ctx, s, func(container, object string) error {
		return errors.Join(ts.readAccounts(ctx, container, object, accounts.PasswdPath, &a.passwd),
			ts.readAccounts(ctx, container, object, accounts.GroupPath, &a.group))
	})
	if err != nil {
		return a, err
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	remember(ts.accounts, s.Image.ID, a, maxKnownImages)
	return a, nil
}

// readAccounts reads a file of a container that was not started. A missing file is empty.
func (ts *Templates) readAccounts(ctx context.Context, container, object, file string, into *accountFile) error {
	err := ts.engine.Do(ctx, engine.Read("copy "+file+" of", object), func(ctx context.Context) error {
		content, stat, err := ts.engine.API.CopyFromContainer(ctx, container, file)
		if err == nil && stat.Mode&fs.ModeSymlink != 0 && stat.LinkTarget != "" {
			if err = content.Close(); err == nil {
				content, stat, err = ts.engine.API.CopyFromContainer(ctx, container, stat.LinkTarget)
			}
		}
		if err != nil {
			return err
		}
		defer content.Close()
		*into = accountFile{fixed: true}
		if !stat.Mode.IsRegular() || stat.Size > relay.MaxAccounts-maxLineBytes {
			return nil
		}
		if stat.Mode&0o004 == 0 {
			*into = accountFile{}
			return nil
		}
		archive := tar.NewReader(content)
		if _, err := archive.Next(); err != nil {
			return err
		}
		b, err := io.ReadAll(io.LimitReader(archive, relay.MaxAccounts))
		*into = accountFile{content: b}
		return err
	})
	if sandbox.CodeOf(err) == sandbox.NotFound {
		return nil
	}
	return err
}

// With adds the users of a sandbox.
func (a ImageAccounts) With(is sandbox.Identity, home string) (files relay.Accounts) {
	users := []accounts.Account{{Name: userName, UID: is.UID, GID: is.GID, Home: home}}
	if is.Own {
		users = append(users, accounts.Account{Name: verifierName, UID: is.UID + 1, GID: is.GID + 1, Home: "/"})
	}
	if !a.passwd.fixed {
		files.Passwd = accounts.Passwd(a.passwd.content, users)
	}
	if !a.group.fixed {
		files.Group = accounts.Group(a.group.content, users)
	}
	return files
}

// NameOf returns the name of a sandbox's user.
func (a ImageAccounts) NameOf(is sandbox.Identity) string {
	if name := accounts.Name(a.passwd.content, is.UID); name != "" {
		return name
	}
	return userName
}
