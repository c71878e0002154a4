// Package oidctest is an OpenID Connect provider for tests. It knows one client, never asks its user, and can give
// wrong answers.
package oidctest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// The client that the provider knows.
const (
	ClientID = "sandbox"
	Secret   = "a client secret for tests"
)

// keys are two RSA keys: one of the provider, and one of another provider.
var keys = sync.OnceValue(func() (pair [2]*rsa.PrivateKey) {
	for i := range pair {
		var err error
		if pair[i], err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
			panic(err)
		}
	}
	return pair
})

// Provider is the provider. Its issuer is URL.
type Provider struct {
	*httptest.Server
	t testing.TB

	mu       sync.Mutex // guards the fields below
	now      func() time.Time
	user     map[string]any
	answer   func(*Answer)
	redirect func(url.Values)
	metadata map[string]any
	down     bool
	codes    map[string]url.Values // the requests by code
	calls    int
}

// Answer is an answer of the token endpoint.
type Answer struct {
	Status int
	Body   map[string]any
	// Claims are the claims of the ID token. Algorithm and Key sign it into Body["id_token"], unless that is set.
	Claims    map[string]any
	Algorithm jose.SignatureAlgorithm
	Key       any
}

// Foreign is the key of another provider.
func Foreign() *rsa.PrivateKey { return keys()[1] }

// PublicKey is the provider's public key.
func PublicKey() *rsa.PublicKey { return &keys()[0].PublicKey }

// New starts a provider with the user "ann", who is in the group "ops". It ends with the test. now is its clock.
func New(t testing.TB, now func() time.Time) *Provider {
	p := &Provider{t: t, now: now, codes: map[string]url.Values{}, metadata: map[string]any{}}
	p.SetUser("ann", "ann@example.com", "ops")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.discovery)
	mux.HandleFunc("GET /keys", p.keys)
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.calls++
		if p.down {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	p.URL = strings.Replace(p.URL, "127.0.0.1", "localhost", 1) // a different site from the client under test
	t.Cleanup(p.Close)
	return p
}

// SetUser sets the user of the next logins. The ID token has a verified email, unless it is "".
func (p *Provider) SetUser(subject, email string, groups ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.user = map[string]any{"sub": subject, "groups": groups}
	if email != "" {
		p.user["email"], p.user["email_verified"] = email, true
	}
}

// Answers sets a function that changes the answers of the token endpoint; nil changes nothing.
func (p *Provider) Answers(change func(*Answer)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = change
}

// Redirects sets a function that changes the query of redirects to the client; nil changes nothing.
func (p *Provider) Redirects(change func(url.Values)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.redirect = change
}

// Says sets a value of the discovery document.
func (p *Provider) Says(name string, value any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.metadata[name] = value
}

// SetDown makes the provider answer 503.
func (p *Provider) SetDown(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
}

// Calls returns how many requests the provider has received.
func (p *Provider) Calls() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

// Visit follows a redirect to the provider as a browser does, and returns the URL that it redirects back to.
func (p *Provider) Visit(redirect string) *url.URL {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, redirect, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := p.Client().Transport.RoundTrip(r)
	if err != nil {
		p.t.Fatal(err)
	}
	_ = resp.Body.Close() // the body is empty
	back, err := resp.Location()
	if err != nil {
		p.t.Fatalf("%s is answered with %d: %v", redirect, resp.StatusCode, err)
	}
	return back
}

func (p *Provider) discovery(w http.ResponseWriter, _ *http.Request) {
	says := map[string]any{
		"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token",
		"jwks_uri": p.URL + "/keys", "id_token_signing_alg_values_supported": []string{"RS256", "HS256", "none"},
	}
	for name, value := range p.metadata {
		says[name] = value
	}
	writeJSON(w, http.StatusOK, says)
}

func (p *Provider) keys(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{Key: PublicKey(), KeyID: "1", Algorithm: "RS256", Use: "sig"}}})
}

func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("client_id") != ClientID || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" ||
		q.Get("state") == "" || q.Get("nonce") == "" || !strings.Contains(" "+q.Get("scope")+" ", " openid ") {
		http.Error(w, "bad request: "+r.URL.RawQuery, http.StatusBadRequest)
		return
	}
	code := rand.Text()
	p.codes[code] = q
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := url.Values{"code": {code}, "state": {q.Get("state")}}
	if p.redirect != nil {
		p.redirect(answer)
	}
	back.RawQuery = answer.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	id, secret, _ := r.BasicAuth()
	if id == "" {
		id, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	if secret, _ = url.QueryUnescape(secret); id != ClientID || secret != Secret {
		writeJSON(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
		return
	}
	code := r.PostFormValue("code")
	asked, ok := p.codes[code]
	delete(p.codes, code) // a code is valid once
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if !ok || base64.RawURLEncoding.EncodeToString(sum[:]) != asked.Get("code_challenge") ||
		r.PostFormValue("redirect_uri") != asked.Get("redirect_uri") {
		writeJSON(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant"})
		return
	}
	a := Answer{Status: http.StatusOK, Body: map[string]any{"access_token": "unused", "token_type": "Bearer"},
		Algorithm: jose.RS256, Key: keys()[0], Claims: map[string]any{
			"iss": p.URL, "aud": ClientID, "nonce": asked.Get("nonce"),
			"iat": p.now().Unix(), "exp": p.now().Add(time.Hour).Unix(),
		}}
	for name, value := range p.user {
		a.Claims[name] = value
	}
	if p.answer != nil {
		p.answer(&a)
	}
	if a.Body["id_token"] == nil {
		a.Body["id_token"] = p.sign(a)
	}
	writeJSON(w, a.Status, a.Body)
}

func (p *Provider) sign(a Answer) string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: a.Algorithm, Key: a.Key},
		(&jose.SignerOptions{}).WithHeader("kid", "1"))
	if err != nil {
		p.t.Error(err)
		return ""
	}
	text, err := json.Marshal(a.Claims)
	if err != nil {
		p.t.Error(err)
		return ""
	}
	signed, err := signer.Sign(text)
	if err != nil {
		p.t.Error(err)
		return ""
	}
	compact, err := signed.CompactSerialize()
	if err != nil {
		p.t.Error(err)
	}
	return compact
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have disconnected
}
