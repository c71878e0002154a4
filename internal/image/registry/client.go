package registry

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// callTimeout limits every call except copies.
const callTimeout = time.Minute

// Credentials are the credentials for one registry.
type Credentials struct {
	// Username is empty to use Docker's own credentials.
	Username string
	Password sandbox.Secret
	// CA holds PEM certificates of CAs that are trusted in addition to the system's.
	CA string
}

// Client calls container registries. It is safe for concurrent use.
type Client struct {
	given  map[string]Credentials // by registry
	logins map[string]Login       // by registry
	wait   time.Duration
}

// New returns a client. given are credentials by registry, named as Host returns it.
func New(given map[string]Credentials) *Client { return &Client{given: given} }

// Login returns credentials that change over time. It is called before every request. Its errors carry a
// code.
type Login func(context.Context) (username string, password sandbox.Secret, err error)

// With returns a client that also uses a login for a registry, named as Host returns it. Explicit credentials
// for the registry take precedence.
func (c *Client) With(host string, l Login) *Client {
	other := *c
	other.logins = maps.Clone(c.logins)
	if other.logins == nil {
		other.logins = make(map[string]Login, 1)
	}
	other.logins[host] = l
	return &other
}

// Waiting returns a client whose first retry waits this long; later ones wait longer. The default is one
// second. There are three attempts.
func (c *Client) Waiting(first time.Duration) *Client {
	other := *c
	other.wait = first
	return &other
}

// session adapts a login for requests.
type session struct{ login Login }

// AuthorizationContext implements authn.ContextAuthenticator.
func (s session) AuthorizationContext(ctx context.Context) (*authn.AuthConfig, error) {
	username, password, err := s.login(ctx)
	if err != nil {
		return nil, err
	}
	return &authn.AuthConfig{Username: username, Password: string(password)}, nil
}

// Authorization implements authn.Authenticator, for callers without a context.
func (s session) Authorization() (*authn.AuthConfig, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	return s.AuthorizationContext(ctx)
}

// Host returns the registry of a repository or reference: "host[:port]", "index.docker.io" for Docker Hub.
// Errors: Invalid.
func Host(ref string) (string, error) {
	parsed, err := parse(ref)
	if err != nil {
		return "", err
	}
	return parsed.Context().RegistryStr(), nil
}

func parse(ref string) (name.Reference, error) {
	parsed, err := name.ParseReference(ref)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid,
			"%q is not an image reference such as registry.example.com/games/catan:v1", ref)
	}
	return parsed, nil
}

// Resolve returns the credentials of a registry. It implements authn.Keychain.
func (c *Client) Resolve(of authn.Resource) (authn.Authenticator, error) {
	if given := c.given[of.RegistryStr()]; given.Username != "" {
		return &authn.Basic{Username: given.Username, Password: string(given.Password)}, nil
	}
	if login := c.logins[of.RegistryStr()]; login != nil {
		return session{login}, nil
	}
	return authn.DefaultKeychain.Resolve(of)
}

// EngineAuth returns the X-Registry-Auth header for a Docker Engine to push to or pull from the registry of a
// reference. The value is a secret. Errors: Invalid, if Docker's configuration cannot be read or its
// credential helper fails; those of a login.
func (c *Client) EngineAuth(ctx context.Context, ref string) (string, error) {
	parsed, err := parse(ref)
	if err != nil {
		return "", err
	}
	auth, err := c.Auth(ctx, parsed.Context())
	if err != nil {
		return "", err
	}
	encoded, err := json.Marshal(auth)
	if err != nil {
		return "", sandbox.Errorf(sandbox.Internal, "encode the credentials for registry %s: %w", auth.ServerAddress, err)
	}
	return base64.URLEncoding.EncodeToString(encoded), nil
}

// Auth returns the credentials of a registry in the form of the Docker API. Errors: as EngineAuth.
func (c *Client) Auth(ctx context.Context, of authn.Resource) (dockerapi.AuthConfig, error) {
	host := of.RegistryStr()
	found, err := c.Resolve(of)
	if err != nil {
		return dockerapi.AuthConfig{}, sandbox.Errorf(sandbox.Invalid,
			"find the credentials for registry %s in Docker's configuration: %w", host, err)
	}
	auth, err := authn.Authorization(ctx, found)
	if own := (*sandbox.Error)(nil); errors.As(err, &own) {
		return dockerapi.AuthConfig{}, own
	}
	if err != nil {
		return dockerapi.AuthConfig{}, sandbox.Errorf(sandbox.Invalid, "find the credentials for registry %s: %w", host, err)
	}
	return dockerapi.AuthConfig{
		Username: auth.Username, Password: auth.Password, Auth: auth.Auth,
		IdentityToken: auth.IdentityToken, RegistryToken: auth.RegistryToken, ServerAddress: host,
	}, nil
}

// options returns the common options of calls on a reference.
func (c *Client) options(ctx context.Context, ref name.Reference) ([]remote.Option, error) {
	rt, err := c.transport(ref.Context().RegistryStr())
	if err != nil {
		return nil, err
	}
	return []remote.Option{
		remote.WithContext(ctx), remote.WithTransport(rt), remote.WithAuthFromKeychain(c),
		remote.WithUserAgent("terraform-provider-sandbox"),
		remote.WithRetryBackoff(remote.Backoff{Duration: cmp.Or(c.wait, time.Second), Factor: 3, Jitter: 0.1, Steps: 3}),
	}, nil
}
