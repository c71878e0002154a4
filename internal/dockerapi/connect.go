package dockerapi

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/connhelper"
	dcontext "github.com/docker/cli/cli/context"
	"github.com/docker/cli/cli/context/store"
	"github.com/docker/docker/client"
	"github.com/docker/go-connections/tlsconfig"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// defaultContext is the docker CLI's name for "no context".
	defaultContext = "default"
	// contextEndpoint is the name of the engine in a context of the docker CLI.
	contextEndpoint = "docker"
	// dialTimeout and keepAlive have the docker CLI's values.
	dialTimeout = 30 * time.Second
	keepAlive   = 30 * time.Second
)

// Connect returns a client of the engine at host, or else of a context of the docker CLI. If both are empty, it finds
// the engine as the docker CLI does: DOCKER_HOST, DOCKER_CONTEXT, the current context, the default socket. It does not
// connect. Errors: Invalid if the address or the context is invalid.
func Connect(host, context string) (*Client, error) {
	found, err := find(host, context)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "docker: find the engine: %w", err)
	}
	options, err := found.options()
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "docker: set up the client of %s: %w", found.host, err)
	}
	api, err := client.NewClientWithOpts(append(options, found.explain, client.WithVersionFromEnv(),
		client.WithAPIVersionNegotiation())...)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "docker: set up the client of %s: %w", found.host, err)
	}
	return api, nil
}

// Address returns the address of the engine that Connect finds. Errors: Invalid.
func Address(host, context string) (string, error) {
	found, err := find(host, context)
	if err != nil {
		return "", sandbox.Errorf(sandbox.Invalid, "docker: find the engine: %w", err)
	}
	return cmp.Or(found.host, client.DefaultDockerHost), nil
}

// endpoint is the address of an engine.
type endpoint struct {
	host string
	// tls is nil if the connection needs no certificates of its own.
	tls        *dcontext.TLSData
	skipVerify bool
}

func find(host, context string) (endpoint, error) {
	if host == "" {
		if context == "" && os.Getenv(client.EnvOverrideHost) == "" {
			context = cmp.Or(os.Getenv("DOCKER_CONTEXT"), config.LoadDefaultConfigFile(io.Discard).CurrentContext)
		}
		if context != "" && context != defaultContext {
			return inContext(context)
		}
	}
	e := endpoint{host: cmp.Or(host, os.Getenv(client.EnvOverrideHost), client.DefaultDockerHost)}
	dir := os.Getenv(client.EnvOverrideCertPath)
	if dir == "" {
		return e, nil
	}
	var err error
	e.tls, err = dcontext.TLSDataFromFiles(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"),
		filepath.Join(dir, "key.pem"))
	e.skipVerify = os.Getenv(client.EnvTLSVerify) == ""
	return e, err
}

// inContext returns the endpoint in a context of the docker CLI.
func inContext(name string) (endpoint, error) {
	contexts := store.New(filepath.Join(config.Dir(), "contexts"), store.NewConfig(
		func() any { return &map[string]any{} },
		store.EndpointTypeGetter(contextEndpoint, func() any { return &dcontext.EndpointMetaBase{} }),
	))
	meta, err := contexts.GetMetadata(name)
	if err != nil {
		return endpoint{}, err
	}
	engine, ok := meta.Endpoints[contextEndpoint].(dcontext.EndpointMetaBase)
	if !ok {
		return endpoint{}, errors.New("context " + name + " names no Docker engine")
	}
	data, err := dcontext.LoadTLSData(contexts, name, contextEndpoint)
	return endpoint{host: engine.Host, tls: data, skipVerify: engine.SkipTLSVerify}, err
}

// options are the options for a client of the engine. With ssh, the client runs the ssh program.
func (e endpoint) options() ([]client.Opt, error) {
	if e.host == "" {
		return nil, nil
	}
	helper, err := connhelper.GetConnectionHelper(e.host)
	if err != nil {
		return nil, err
	}
	if helper != nil {
		through := &http.Client{Transport: &http.Transport{DialContext: helper.Dialer}} // without TLS and proxy
		return []client.Opt{
			client.WithHTTPClient(through), client.WithHost(helper.Host), client.WithDialContext(helper.Dialer),
		}, nil
	}
	encrypted, err := e.tlsConfig()
	if err != nil || encrypted == nil {
		return []client.Opt{client.WithHost(e.host)}, err
	}
	dialer := net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}
	own := &http.Client{
		Transport:     &http.Transport{TLSClientConfig: encrypted, DialContext: dialer.DialContext},
		CheckRedirect: client.CheckRedirect,
	}
	return []client.Opt{client.WithHTTPClient(own), client.WithHost(e.host)}, nil
}

// tlsConfig is nil for sockets, and if the client's own configuration suffices.
func (e endpoint) tlsConfig() (*tls.Config, error) {
	scheme, _, _ := strings.Cut(e.host, "://")
	if scheme == "unix" || scheme == "npipe" || e.tls == nil && !e.skipVerify {
		return nil, nil
	}
	c := tlsconfig.ClientDefault()
	c.InsecureSkipVerify = e.skipVerify // set by the context or DOCKER_TLS_VERIFY
	if e.tls == nil {
		return c, nil
	}
	if e.tls.CA != nil {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(e.tls.CA) {
			return nil, errors.New("ca.pem holds no certificate")
		}
	}
	if e.tls.Cert != nil && e.tls.Key != nil {
		own, err := tls.X509KeyPair(e.tls.Cert, e.tls.Key)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{own}
	}
	return c, nil
}
