// Package location says where a ledger is: its URL, the default URL, and the default places next to it.
package location

import (
	"errors"
	"net/url"
	"path/filepath"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const urlForms = "write it as sqlite:///absolute/path/ledger.db or postgres://user@host/database"

// Parse parses a ledger URL. Its errors do not contain the password.
func Parse(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		var e *url.Error
		if errors.As(err, &e) {
			err = e.Err // without the URL
		}
		return nil, sandbox.Errorf(sandbox.Invalid, "ledger URL: %w; %s", err, urlForms)
	}
	switch u.Scheme {
	case "sqlite", "postgres", "postgresql":
		return u, nil
	default:
		return nil, sandbox.Errorf(sandbox.Invalid, "ledger URL %q: %s", Redact(raw), urlForms)
	}
}

// Check reports a URL that names no ledger, without opening one. Errors: Invalid.
func Check(raw string) error {
	u, err := Parse(raw)
	if err == nil && u.Scheme == "sqlite" {
		_, err = SQLitePath(u)
	}
	return err
}

// SecretKeyFile returns the default file of the key for secrets: next to a file ledger, and none ("") for a
// ledger that several machines may share.
func SecretKeyFile(raw string) string {
	u, err := Parse(raw)
	if err != nil || u.Scheme != "sqlite" {
		return ""
	}
	return u.Path + ".key"
}

// Redact returns a ledger URL without passwords, for display.
func Redact(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(not a URL)"
	}
	q := u.Query()
	for _, secret := range []string{"password", "sslpassword"} {
		if q.Has(secret) {
			q.Set(secret, "xxxxx")
			u.RawQuery = q.Encode()
		}
	}
	return u.Redacted()
}

// SQLitePath returns the file of an embedded ledger. Errors: Invalid.
func SQLitePath(u *url.URL) (string, error) {
	if u.Host != "" || !filepath.IsAbs(u.Path) || u.RawQuery != "" {
		return "", sandbox.Errorf(sandbox.Invalid,
			"ledger URL %q: write it as sqlite:///absolute/path/ledger.db, without host and query", Redact(u.String()))
	}
	return u.Path, nil
}
