package gitmirror

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Archive is a file that is fetched from an allowed host.
type Archive struct {
	URL string
	// SHA256 is the digest that the file must have, in hexadecimal.
	SHA256 string
	// Header is sent with the value Secret, unless that is empty.
	Header string
	Secret sandbox.Secret
}

// OpenArchive returns the content of an archive, from the cache or else from its server. The cached file is beside the
// mirrors, is pruned with them, and has the limits of a pack. The caller closes it. Errors: Failed; Unavailable while
// the server or the disk cannot be used. They do not contain the URL's query.
func (s *Store) OpenArchive(ctx context.Context, a Archive) (*os.File, error) {
	u, err := url.Parse(a.URL)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Failed, "its URL cannot be read")
	}
	if problem := s.hosts.check(u); problem != "" {
		return nil, sandbox.Errorf(sandbox.Failed, "%s", problem)
	}
	key, err := s.ownKey()
	if err != nil {
		return nil, err
	}
	// The digest alone must not give access to the file in the cache.
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "archive %q %q %q %q", a.SHA256, a.URL, a.Header, string(a.Secret))
	entry, err := s.take("archive-"+hex.EncodeToString(mac.Sum(nil)), ".")
	if err != nil {
		return nil, err
	}
	defer s.leave(entry)
	if err := entry.lock(ctx); err != nil {
		return nil, err
	}
	defer entry.unlock()
	name := filepath.Join(entry.dir, "content")
	if f, err := os.Open(name); err == nil { // #nosec G304 -- a name of ours
		return f, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.Limits.Time)
	defer cancel()
	f, err := os.CreateTemp(entry.dir, "fetch-*")
	if err != nil {
		return nil, cacheError(err)
	}
	if err = s.download(ctx, u, a, f); err == nil {
		_, err = f.Seek(0, io.SeekStart)
		if err = errors.Join(err, os.Rename(f.Name(), name)); err != nil {
			err = cacheError(err)
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.RemoveAll(f.Name()))
	}
	return f, nil
}

// download writes an archive into a file, and compares its digest.
func (s *Store) download(ctx context.Context, u *url.URL, a Archive, into io.Writer) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return sandbox.Errorf(sandbox.Failed, "its URL cannot be read")
	}
	r.Header.Set("Accept-Encoding", "identity") // the digest is that of the file
	if a.Secret != "" {
		r.Header.Set(a.Header, string(a.Secret))
	}
	res, err := s.hosts.allows(u).client(u, s.routes, s.Limits.PackBytes).Do(r)
	if err != nil {
		return a.explain(err)
	}
	defer func() { _ = res.Body.Close() }() // only read
	if res.StatusCode != http.StatusOK {
		code := sandbox.Failed
		if res.StatusCode >= http.StatusInternalServerError || res.StatusCode == http.StatusTooManyRequests {
			code = sandbox.Unavailable
		}
		return sandbox.Errorf(code, "the server answers with %d %s", res.StatusCode, http.StatusText(res.StatusCode))
	}
	digest := sha256.New()
	if _, err := io.Copy(io.MultiWriter(into, digest), res.Body); err != nil {
		return a.explain(err)
	}
	if got := hex.EncodeToString(digest.Sum(nil)); got != a.SHA256 {
		return sandbox.Errorf(sandbox.Failed, "its SHA-256 is %s, not %s", got, a.SHA256)
	}
	return nil
}

// explain returns the error of a request. It repeats neither the URL, which may hold a signature, nor the credential.
func (a Archive) explain(err error) error {
	if asked, ok := errors.AsType[*url.Error](err); ok {
		err = asked.Err
	}
	if known, ok := errors.AsType[*sandbox.Error](err); ok {
		return known
	}
	if refused, ok := errors.AsType[refusedAddress](err); ok {
		return sandbox.Errorf(sandbox.Failed, "%w", refused)
	}
	return sandbox.Errorf(sandbox.Unavailable, "the server cannot be read: %s", scrub(err, "", a.Secret))
}
