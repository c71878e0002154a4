package ledger

import (
	"errors"
	"net/url"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const urlForms = "write it as sqlite:///absolute/path/ledger.db or postgres://user@host/database"

// parseURL parses a ledger URL. Its errors do not contain the password.
func parseURL(raw string) (*url.URL, error) {
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
		return nil, sandbox.Errorf(sandbox.Invalid, "ledger URL %q: %s", RedactURL(raw), urlForms)
	}
}

// CheckURL reports a URL that names no ledger, without opening one. Errors: Invalid.
func CheckURL(raw string) error {
	u, err := parseURL(raw)
	if err == nil && u.Scheme == "sqlite" {
		_, err = sqlitePath(u)
	}
	return err
}

// SecretKeyFile returns the default file of the key for secrets: next to a file ledger, and none ("") for a
// ledger that several machines may share.
func SecretKeyFile(raw string) string {
	u, err := parseURL(raw)
	if err != nil || u.Scheme != "sqlite" {
		return ""
	}
	return u.Path + ".key"
}

// RedactURL returns a ledger URL without passwords, for display.
func RedactURL(raw string) string {
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
