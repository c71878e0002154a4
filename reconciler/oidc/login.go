package oidc

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	coreos "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// AttemptLifetime is how long a user may take to log in at the provider.
	AttemptLifetime = 10 * time.Minute
	// maxNext limits the path of the page that a login leads to, in bytes: the cookie holds it.
	maxNext = 1024
	// maxName limits the name of a user, in bytes: OpenID Connect allows subjects of 255.
	maxName = 255
)

// attempt is a login that has begun in a browser.
type attempt struct {
	State    string    `json:"state"`
	Nonce    string    `json:"nonce"`
	Verifier string    `json:"verifier"` // of PKCE
	Next     string    `json:"next,omitempty"`
	Until    time.Time `json:"until"`
}

// Login is a user whom the provider has authenticated.
type Login struct {
	// Name is the verified email of the user, or the subject.
	Name string
	// Subject identifies the user at the provider; Email is "" if the provider has not verified it.
	Subject, Email string
	// Groups are the groups of the user that have a role, Role is the strongest.
	Groups []string
	Role   sandbox.Scope
	// Until is when the login ends.
	Until time.Time
	// User is the text for access.Registry and TokenOf.
	User string
}

// Begin starts a login that leads to the page next. It returns the URL to redirect the browser to, and the value of a
// cookie for Finish. Errors: Unavailable while the provider has not answered.
func (p *Provider) Begin(next string) (redirect, cookie string, err error) {
	found := p.discovered.Load()
	if found == nil {
		return "", "", p.unavailable(nil)
	}
	if len(next) > maxNext {
		next = ""
	}
	// Each has 256 random bits.
	a := attempt{State: oauth2.GenerateVerifier(), Nonce: oauth2.GenerateVerifier(), Verifier: oauth2.GenerateVerifier(),
		Next: next, Until: p.now().Add(AttemptLifetime)}
	if cookie, err = p.sign(a); err != nil {
		return "", "", err
	}
	return found.oauth.AuthCodeURL(a.State, coreos.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)), cookie, nil
}

// sign returns an attempt as the value of a cookie.
func (p *Provider) sign(a attempt) (string, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(text) + "." +
		base64.RawURLEncoding.EncodeToString(mac(p.settings.Load().key, text)), nil
}

func mac(key, text []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(text)
	return h.Sum(nil)
}

// open returns the attempt in a cookie. Errors: Unauthenticated.
func (p *Provider) open(cookie string) (a attempt, err error) {
	head, tail, _ := strings.Cut(cookie, ".")
	text, err := base64.RawURLEncoding.DecodeString(head)
	signature, err2 := base64.RawURLEncoding.DecodeString(tail)
	if errors.Join(err, err2) != nil || !hmac.Equal(signature, mac(p.settings.Load().key, text)) {
		return a, refused("this browser has no login in progress: start again at %s", p.Home())
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, refused("this browser has a login of another version: start again")
	}
	if !p.now().Before(a.Until) {
		return a, refused("the login took longer than %s: start again", AttemptLifetime)
	}
	return a, nil
}

// Finish checks the answer of the provider, which is the query of the redirect, against the attempt in the cookie of
// Begin. It returns the user, and the page that the login leads to. Errors: Unauthenticated; Forbidden for a user
// without a role; Unavailable.
func (p *Provider) Finish(ctx context.Context, cookie string, answer url.Values) (l Login, next string, err error) {
	found := p.discovered.Load()
	if found == nil {
		return l, "", p.unavailable(nil)
	}
	a, err := p.open(cookie)
	if err != nil {
		return l, "", err
	}
	code, err := p.codeIn(found, a, answer)
	if err != nil {
		return l, a.Next, err
	}
	token, err := p.exchange(ctx, found, a, code)
	if err != nil {
		return l, a.Next, err
	}
	l, err = p.loginOf(token)
	return l, a.Next, err
}

// codeIn returns the code in an answer to the attempt. Errors: Unauthenticated.
func (p *Provider) codeIn(found *discovered, a attempt, answer url.Values) (string, error) {
	for _, name := range []string{"state", "code", "iss", "error"} {
		if len(answer[name]) > 1 {
			return "", refused("the answer of %s has two values of %s: start again", p.Name(), name)
		}
	}
	if !hmac.Equal([]byte(answer.Get("state")), []byte(a.State)) {
		return "", refused("the answer belongs to another login, perhaps in another tab of this browser: start again")
	}
	// An answer from another provider must not count as one from this provider.
	if issuer := answer.Get("iss"); issuer != p.config.Issuer && (found.namesItself || answer.Has("iss")) {
		return "", refused("the answer comes from the provider %q, not from %s: start again", short(issuer), p.Name())
	}
	if code := answer.Get("error"); code != "" {
		return "", refused("%s refused the login: %s", p.Name(), short(code+" "+answer.Get("error_description")))
	}
	if answer.Get("code") == "" {
		return "", refused("the answer of %s has no code: start again", p.Name())
	}
	return answer.Get("code"), nil
}

// exchange exchanges a code for an ID token, and verifies it. Errors: Unauthenticated, Unavailable.
func (p *Provider) exchange(ctx context.Context, found *discovered, a attempt, code string) (*coreos.IDToken, error) {
	ctx, cancel := p.call(ctx)
	defer cancel()
	client := found.oauth
	client.ClientSecret = p.settings.Load().secret
	tokens, err := client.Exchange(ctx, code, oauth2.VerifierOption(a.Verifier))
	if answered := new(oauth2.RetrieveError); errors.As(err, &answered) {
		if answered.Response.StatusCode >= http.StatusInternalServerError {
			return nil, p.unavailable(errors.New(short(answered.Error())))
		}
		return nil, refused("%s does not accept the code or this client: %s",
			p.Name(), short(answered.ErrorCode+" "+answered.ErrorDescription))
	}
	if err != nil {
		return nil, p.unavailable(err)
	}
	raw, ok := tokens.Extra("id_token").(string)
	if !ok {
		return nil, refused("the answer of %s has no ID token", p.Name())
	}
	token, err := found.verifier.Verify(ctx, raw)
	switch {
	case ctx.Err() != nil:
		return nil, p.unavailable(ctx.Err())
	case err != nil:
		return nil, refused("the ID token of %s is not valid: %s", p.Name(), short(err.Error()))
	case !hmac.Equal([]byte(token.Nonce), []byte(a.Nonce)):
		return nil, refused("the ID token of %s belongs to another login: start again", p.Name())
	case !p.now().Before(token.Expiry): // the verifier accepts this instant
		return nil, refused("the ID token of %s has expired", p.Name())
	}
	return token, nil
}

// loginOf returns the user of an ID token. Errors: Unauthenticated; Forbidden for a user without a role.
func (p *Provider) loginOf(token *coreos.IDToken) (l Login, err error) {
	var claims map[string]json.RawMessage
	if err := token.Claims(&claims); err != nil {
		return l, refused("the claims of the ID token cannot be read: %s", short(err.Error()))
	}
	if party := textIn(claims["azp"]); len(token.Audience) > 1 && party != p.config.ClientID ||
		party != "" && party != p.config.ClientID {
		return l, refused("the ID token was issued to the client %q, not to this one", short(party))
	}
	l.Subject, l.Name = token.Subject, token.Subject
	// Anyone can claim an email that the provider has not verified.
	if verified := strings.Trim(string(claims["email_verified"]), `"`); verified == "true" {
		if l.Email = textIn(claims["email"]); l.Email != "" {
			l.Name = l.Email
		}
	}
	if l.Subject == "" || len(l.Name) > maxName || strings.ContainsFunc(l.Name, func(r rune) bool {
		return !unicode.IsGraphic(r) || unicode.IsSpace(r)
	}) {
		return l, refused("the ID token has no usable subject or email: want 1 to %d bytes without spaces", maxName)
	}
	groups, known := p.settings.Load().roles, textsIn(claims[p.config.GroupsClaim])
	l.Groups, l.Role = groups.among(known), groups.of(known)
	if l.Role == "" {
		return l, sandbox.Errorf(sandbox.Forbidden, "you are logged in at %s as %s, but none of your groups there has a "+
			"role here: ask the operator of this reconciler for one (groups in the claim %s of your ID token: %d)",
			p.Name(), l.Name, p.config.GroupsClaim, len(known)).WithReason(sandbox.ReasonScopeMissing)
	}
	l.Until = p.now().Add(MaxSession)
	if token.Expiry.Before(l.Until) {
		l.Until = token.Expiry
	}
	text, err := json.Marshal(user{Name: l.Name, Groups: l.Groups})
	l.User = string(text)
	return l, err
}

// textIn returns a claim that is a string, "" for any other.
func textIn(claim json.RawMessage) (text string) {
	if json.Unmarshal(claim, &text) != nil {
		return ""
	}
	return text
}

// textsIn returns a claim that is a list of strings, or one string. It skips other elements.
func textsIn(claim json.RawMessage) (texts []string) {
	if text := textIn(claim); text != "" {
		return []string{text}
	}
	var list []json.RawMessage
	if json.Unmarshal(claim, &list) != nil {
		return nil
	}
	for _, one := range list {
		if text := textIn(one); text != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

func refused(format string, args ...any) error {
	return sandbox.Errorf(sandbox.Unauthenticated, format, args...)
}

// unavailable is the error while the provider is unreachable. The cause is only logged: users do not need addresses of
// the network.
func (p *Provider) unavailable(cause error) error {
	if cause != nil {
		p.log.Warn("oidc: a login failed, because the provider does not answer", "issuer", p.config.Issuer,
			"error", short(cause.Error()))
	}
	return sandbox.Errorf(sandbox.Unavailable, "%s does not answer: log in with a token, or retry in a minute", p.Name())
}
