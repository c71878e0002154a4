package deploy

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// EnvRegistry is the environment variable of Cloudflare's own tools for the address of the registry.
const EnvRegistry = "CLOUDFLARE_CONTAINER_REGISTRY"

// RegistryDomain is Cloudflare's registry, where the names of an account's repositories begin with its id.
const RegistryDomain = "registry.cloudflare.com"

// Credentials of the registry are requested as wrangler does, and replaced shortly before they expire.
const (
	credentialMinutes = 15
	credentialReserve = 2 * time.Minute
)

// credentials are short-lived credentials for the account's registry.
type credentials struct {
	Host     string         `json:"registry_host"`
	Username string         `json:"username"`
	Password sandbox.Secret `json:"password"`

	until time.Time
}

// Registry is the registry of one account. It is safe for concurrent use.
type Registry struct {
	d       *Deployer
	domain  string
	apiHost string
	now     func() time.Time

	turn sync.Mutex // held while credentials are requested
	mu   sync.Mutex // guards last
	last credentials
}

func newRegistry(d *Deployer, cfg Config) *Registry {
	r := &Registry{d: d, domain: cmp.Or(cfg.Registry, RegistryDomain), now: cfg.Now}
	if api, err := url.Parse(cfg.BaseURL); err == nil && cfg.BaseURL != BaseURL {
		r.apiHost = api.Host // a local API server has a registry of its own
	}
	if r.now == nil {
		r.now = time.Now
	}
	return r
}

// current returns valid credentials. Host is "" if there are none.
func (r *Registry) current() credentials {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.last.until.After(r.now()) {
		return credentials{}
	}
	return r.last
}

// forget discards the credentials: the next request gets new ones.
func (r *Registry) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = credentials{}
}

// credentials returns valid credentials, and requests new ones if needed. Errors: as for every API call.
func (r *Registry) credentials(ctx context.Context) (credentials, error) {
	r.turn.Lock()
	defer r.turn.Unlock()
	if have := r.current(); have.Host != "" {
		return have, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	asked := r.now()
	var got credentials
	body := map[string]any{"expiration_minutes": credentialMinutes, "permissions": []string{"push", "pull"}}
	if err := r.d.api.call(ctx, http.MethodPost, "/containers/registries/"+r.domain+"/credentials",
		body, &got); err != nil {
		return credentials{}, r.d.fail(step{what: "get credentials for " + r.domain, needs: permContainers}, err)
	}
	if got.Password == "" {
		return credentials{}, sandbox.Errorf(sandbox.Failed,
			"cloudflare: account %s: get credentials for %s: the answer has none", r.d.account, r.domain)
	}
	got.Host, got.Username = cmp.Or(got.Host, r.domain), cmp.Or(got.Username, "v1")
	got.until = asked.Add(credentialMinutes*time.Minute - credentialReserve)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = got
	return got, nil
}

// Login implements registry.Login.
func (r *Registry) Login(ctx context.Context) (string, sandbox.Secret, error) {
	c, err := r.credentials(ctx)
	return c.Username, c.Password, err
}

// Host returns the registry's address, host[:port]. Errors: as for every API call.
func (r *Registry) Host(ctx context.Context) (string, error) {
	c, err := r.credentials(ctx)
	return c.Host, err
}

// Has reports whether a name or reference is in the account's part of the registry. It does not connect.
func (r *Registry) Has(ref string) bool { return r.within(ref) != "" }

// within returns a reference without the registry's address, "" if it is not in the account's part of the registry.
func (r *Registry) within(ref string) string {
	host, path, _ := strings.Cut(ref, "/")
	if !strings.HasPrefix(path, r.d.account+"/") || (host != r.domain && (host != r.apiHost || host == "")) {
		return ""
	}
	return path
}
