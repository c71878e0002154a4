// Package oidc logs users of the dashboard in at an OpenID Connect provider, with the authorization code flow and PKCE.
// Groups of the provider have roles, which are scopes of tokens.
//
// A login starts with Begin, which returns the URL of the provider and an attempt for a cookie of the browser: the
// state, the nonce and the PKCE verifier, signed with a key from the client secret. The provider redirects the browser
// back, and Finish checks the answer against the attempt. So every reconciler with the same settings can finish a login
// that another one began, and an answer is of no use in another browser.
//
// The package stores nothing. Registry.LogIn of package access keeps the login, and the browser's cookie names the
// user. TokenOf applies the current roles, so a role that the operator removes ends immediately.
package oidc

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	coreos "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// MaxSession is how long a user stays logged in, unless the ID token ends first.
	MaxSession = 8 * time.Hour
	// CallbackPath is the path of the redirect URL.
	CallbackPath = "/ui/login/oidc/callback"
	// callTimeout limits one request to the provider.
	callTimeout = 10 * time.Second
	// firstRetry and lastRetry are the first and the longest pause before discovery is tried again.
	firstRetry, lastRetry = time.Second, time.Minute
	// rediscoverEvery is how often the endpoints of the provider are read again.
	rediscoverEvery = time.Hour
)

// Provider is an OpenID Connect provider and this program's client there. The caller must call Run, which discovers the
// endpoints. It is safe for concurrent use.
type Provider struct {
	config     Config
	now        func() time.Time
	log        *slog.Logger
	client     *http.Client
	settings   atomic.Pointer[settings]
	discovered atomic.Pointer[discovered] // nil until the provider has answered
}

// settings are the settings that a reload replaces.
type settings struct {
	secret string
	key    []byte // signs attempts
	roles  roles
}

// discovered is the provider's discovery document.
type discovered struct {
	oauth       oauth2.Config // without the secret
	verifier    *coreos.IDTokenVerifier
	namesItself bool // answers hold the issuer, RFC 9207
}

// New returns the provider of a configuration. now is the clock; nil means time.Now. It reads the file of the client
// secret, and sends nothing to the provider. Errors: Invalid.
func New(c Config, now func() time.Time, log *slog.Logger) (*Provider, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if now == nil {
		now = time.Now
	}
	p := &Provider{config: c, now: now, log: log, client: newClient()}
	return p, p.Reload(c)
}

// Reload reads the client secret again and takes new roles. After an error, the old ones stay in force.
// Errors: Invalid.
func (p *Provider) Reload(c Config) error {
	var (
		s   settings
		err error
	)
	if s.roles, err = parseRoles(c.Roles); err != nil {
		return err
	}
	if s.secret, err = readSecret(c.SecretFile); err != nil {
		return err
	}
	s.key, err = hkdf.Key(sha256.New, []byte(s.secret), nil, "login attempt\x00"+p.config.Issuer+"\x00"+p.config.ClientID,
		sha256.Size)
	if err != nil {
		return sandbox.Errorf(sandbox.Internal, "deriving the key of login attempts: %w", err)
	}
	p.settings.Store(&s)
	return nil
}

// Name names the provider for users: the host of the issuer.
func (p *Provider) Name() string { return hostOf(p.config.Issuer) }

// Home is the URL of the dashboard at the address that the provider redirects to.
func (p *Provider) Home() string {
	u, err := url.Parse(p.config.RedirectURL)
	if err != nil { // New has checked it
		return ""
	}
	return u.Scheme + "://" + u.Host + "/ui/"
}

// Secure reports whether the provider redirects browsers to https://.
func (p *Provider) Secure() bool { return isHTTPS(p.config.RedirectURL) }

// Ready reports whether the provider has answered, so that logins can start.
func (p *Provider) Ready() bool { return p.discovered.Load() != nil }

// Credential identifies the provider and the client. A login is valid only with the credential that it started with.
func (p *Provider) Credential() access.Hash {
	return access.HashOf("oidc\x00" + p.config.Issuer + "\x00" + p.config.ClientID)
}

// Run discovers the endpoints of the provider until ctx ends: immediately, after failures, and every hour.
func (p *Provider) Run(ctx context.Context) {
	defer p.client.CloseIdleConnections()
	var wait time.Duration
	for {
		if err := p.discover(ctx); err == nil {
			if wait != rediscoverEvery {
				p.log.Info("oidc: users can log in", "issuer", p.config.Issuer)
			}
			wait = rediscoverEvery
		} else {
			if ctx.Err() != nil {
				return
			}
			if wait == rediscoverEvery {
				wait = 0
			}
			wait = min(max(2*wait, firstRetry), lastRetry)
			p.log.Warn("oidc: the provider does not answer; users cannot start a login there until it does",
				"issuer", p.config.Issuer, "retry_in", wait, "error", short(err.Error()))
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// discover reads the endpoints of the provider.
func (p *Provider) discover(ctx context.Context) error {
	ctx, cancel := p.call(ctx)
	defer cancel()
	found, err := coreos.NewProvider(ctx, p.config.Issuer)
	if err != nil {
		return err
	}
	var says struct {
		KeysURL     string   `json:"jwks_uri"`
		Methods     []string `json:"token_endpoint_auth_methods_supported"`
		NamesItself bool     `json:"authorization_response_iss_parameter_supported"`
	}
	if err := found.Claims(&says); err != nil {
		return err
	}
	endpoint := found.Endpoint()
	for name, address := range map[string]string{
		"authorization_endpoint": endpoint.AuthURL, "token_endpoint": endpoint.TokenURL, "jwks_uri": says.KeysURL,
	} {
		if err := checkEndpoint(name, address, isHTTPS(p.config.Issuer)); err != nil {
			return err
		}
	}
	endpoint.AuthStyle = authStyle(says.Methods)
	p.discovered.Store(&discovered{
		oauth: oauth2.Config{ClientID: p.config.ClientID, Endpoint: endpoint, RedirectURL: p.config.RedirectURL,
			Scopes: append([]string{coreos.ScopeOpenID}, p.config.Scopes...)},
		verifier:    found.Verifier(&coreos.Config{ClientID: p.config.ClientID, Now: p.now}),
		namesItself: says.NamesItself,
	})
	return nil
}

// authStyle is how the client secret is sent: in the header by default, in the body if the provider takes it only
// there.
func authStyle(methods []string) oauth2.AuthStyle {
	for i, method := range methods {
		if method == "client_secret_basic" {
			break
		}
		if i == len(methods)-1 {
			return oauth2.AuthStyleInParams
		}
	}
	return oauth2.AuthStyleInHeader
}

// call returns the context of one request to the provider.
func (p *Provider) call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(coreos.ClientContext(ctx, p.client), callTimeout)
}
