package oidc

import (
	"net"
	"net/url"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Config are the settings of login by OpenID Connect.
type Config struct {
	// Issuer is the URL of the provider, as in its ID tokens. Empty means no login by OpenID Connect.
	Issuer string
	// ClientID is this program's id at the provider.
	ClientID string
	// SecretFile holds the client secret, the same for every reconciler behind an address.
	SecretFile string
	// RedirectURL is where the provider sends browsers back: the address of the dashboard, with CallbackPath.
	RedirectURL string
	// GroupsClaim is the claim of the ID token with the user's groups.
	GroupsClaim string
	// Scopes are requested besides openid.
	Scopes []string
	// Roles are GROUP=ROLE, see parseRoles.
	Roles []string
}

// Enabled reports whether users can log in by OpenID Connect.
func (c Config) Enabled() bool { return c.Issuer != "" }

// Validate checks the settings. It opens no file. Errors: Invalid.
func (c Config) Validate() error {
	if !c.Enabled() {
		if c.ClientID != "" || c.SecretFile != "" || c.RedirectURL != "" || len(c.Roles) > 0 {
			return sandbox.Errorf(sandbox.Invalid, "the settings of OpenID Connect need --oidc-issuer")
		}
		return nil
	}
	if err := checkURL("--oidc-issuer", c.Issuer); err != nil {
		return err
	}
	if err := checkURL("--oidc-redirect-url", c.RedirectURL); err != nil {
		return err
	}
	if u, _ := url.Parse(c.RedirectURL); u.Path != CallbackPath {
		return sandbox.Errorf(sandbox.Invalid, "--oidc-redirect-url %s: want the address of the dashboard with the path %s",
			c.RedirectURL, CallbackPath)
	}
	switch {
	case c.ClientID == "":
		return sandbox.Errorf(sandbox.Invalid, "--oidc-issuer needs --oidc-client-id")
	case c.SecretFile == "":
		return sandbox.Errorf(sandbox.Invalid, "--oidc-issuer needs --oidc-client-secret-file")
	case c.GroupsClaim == "":
		return sandbox.Errorf(sandbox.Invalid, "--oidc-groups-claim must not be empty")
	}
	_, err := parseRoles(c.Roles)
	return err
}

// checkURL checks that a setting is the URL of a site: https://, or http:// on this machine. Errors: Invalid.
func checkURL(flag, text string) error {
	u, err := url.Parse(text)
	if err == nil && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == "" &&
		(u.Scheme == "https" || u.Scheme == "http" && isLocal(u.Hostname())) {
		return nil
	}
	return sandbox.Errorf(sandbox.Invalid, "%s %q: want a URL such as https://login.example.com without a query; http:// "+
		"is for this machine only", flag, text)
}

// checkEndpoint checks an address that the provider names. Errors: Invalid.
func checkEndpoint(name, text string, encrypted bool) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && (encrypted || u.Scheme != "http") {
		return sandbox.Errorf(sandbox.Invalid, "the provider's %s is %q, want an https:// URL", name, short(text))
	}
	return nil
}

func isLocal(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func isHTTPS(address string) bool { return strings.HasPrefix(address, "https://") }

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return u.Host
}

// minSecret is the minimum length of a client secret, in characters: the key of login attempts comes from it.
const minSecret = 16

// readSecret reads the file of the client secret. Errors: Invalid; they do not quote the secret.
func readSecret(file string) (string, error) {
	text, err := access.ReadPrivate(file)
	if err != nil {
		return "", err
	}
	text = strings.TrimSpace(text)
	if len(text) < minSecret || strings.ContainsAny(text, "\r\n") {
		return "", sandbox.Errorf(sandbox.Invalid,
			"%s: want the client secret of OpenID Connect alone, on one line, of at least %d characters", file, minSecret)
	}
	return text, nil
}
