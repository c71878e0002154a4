// Package credential adds credentials to the requests that sandboxes make to some hosts. The gateway ends the TLS of
// such a connection itself, with a certificate of an authority that only the environment's sandboxes trust, and makes
// the request to the host again, with the credential in a header. The sandbox never sees the credential.
//
// The credentials are in memory only: a gateway that restarts has none until it gets them again. The authority is in
// the gateway's volume, since sandboxes trust it for as long as they live.
package credential

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/net/http/httpguts"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Config is the body of a control request.
type Config struct {
	// Credentials are the credentials by host, in its canonical form.
	Credentials map[string]Credential `json:"credentials"`
}

// Credential is a header of the requests to a host.
type Credential struct {
	Header string         `json:"header"`
	Value  sandbox.Secret `json:"value"`
}

// Apply sets the credential in a request's header. It replaces the sandbox's own value.
func (c Credential) Apply(h http.Header) { h.Set(c.Header, string(c.Value)) }

// validate returns the first problem. Its errors never contain a value.
func (c Config) validate() error {
	for _, host := range slices.Sorted(maps.Keys(c.Credentials)) {
		name, err := sandbox.CanonicalHost(host)
		if err != nil || name != host {
			return fmt.Errorf("set the credentials: %.260q is not a host name in lower case", host)
		}
		one := c.Credentials[host]
		if !httpguts.ValidHeaderFieldName(one.Header) {
			return fmt.Errorf("set the credential of %s: %.64q is not the name of a header", host, one.Header)
		}
		if one.Value == "" || !httpguts.ValidHeaderFieldValue(string(one.Value)) {
			return fmt.Errorf("set the credential of %s: its value must be one line of text: check its secret", host)
		}
	}
	return nil
}

// Broker holds the credentials of an environment. It is safe for concurrent use.
type Broker struct {
	dir    string
	config atomic.Pointer[Config]

	mu        sync.Mutex // guards authority
	authority *authority // nil until a sandbox needs it
}

// Open opens the broker of a directory, without credentials. It creates a missing directory. The authority is created
// when a sandbox needs it.
func Open(dir string) (*Broker, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the gateway's authority: %w", err)
	}
	a, err := readAuthority(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open the gateway's authority: %w", err)
	}
	b := &Broker{dir: dir, authority: a}
	b.config.Store(&Config{})
	return b, nil
}

// Set replaces the credentials, from the next request on.
func (b *Broker) Set(c Config) error {
	if err := c.validate(); err != nil {
		return err
	}
	b.config.Store(&c)
	return nil
}

// Hosts returns the hosts with a credential, sorted.
func (b *Broker) Hosts() []string { return slices.Sorted(maps.Keys(b.config.Load().Credentials)) }

// For returns the credential of a host.
func (b *Broker) For(host string) (Credential, bool) {
	c, ok := b.config.Load().Credentials[host]
	return c, ok
}

// Leaf returns the certificate with which the gateway poses as a host.
func (b *Broker) Leaf(host string) (*tls.Certificate, error) {
	a, err := b.need()
	if err != nil {
		return nil, err
	}
	return a.leaf(host)
}

// need returns the authority. It creates a missing one.
func (b *Broker) need() (*authority, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.authority != nil {
		return b.authority, nil
	}
	a, err := newAuthority(b.dir)
	if err != nil {
		return nil, fmt.Errorf("make the gateway's authority: %w", err)
	}
	b.authority = a
	return a, nil
}

// Publish links the files with which a sandbox trusts the authority into its directory.
func (b *Broker) Publish(dir string) error {
	if _, err := b.need(); err != nil {
		return err
	}
	for _, name := range []string{CertificateFile, BundleFile} {
		to := filepath.Join(dir, name)
		err := os.Remove(to) // a previous gateway's
		if err == nil || errors.Is(err, os.ErrNotExist) {
			err = os.Link(filepath.Join(b.dir, name), to)
		}
		if err != nil {
			return fmt.Errorf("publish the gateway's authority: %w", err)
		}
	}
	return nil
}
