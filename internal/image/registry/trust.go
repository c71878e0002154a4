package registry

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// certsDir is where Docker keeps CA certificates per registry.
const certsDir = "/etc/docker/certs.d"

// transport returns the HTTP transport for a registry. Its idle connections time out.
func (c *Client) transport(host string) (http.RoundTripper, error) {
	shared, ok := remote.DefaultTransport.(*http.Transport)
	if !ok {
		return nil, sandbox.Errorf(sandbox.Internal, "connect to registry %s: unexpected transport type %T",
			host, remote.DefaultTransport)
	}
	own := shared.Clone()
	own.IdleConnTimeout = 2 * time.Second
	authorities, err := c.authorities(host)
	if err != nil {
		return nil, err
	}
	if authorities != nil {
		own.TLSClientConfig = &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}
	}
	return own, nil
}

// authorities returns the CAs for a registry's certificate, nil for the system's.
func (c *Client) authorities(host string) (*x509.CertPool, error) {
	var more [][]byte
	if ca := c.given[host].CA; ca != "" {
		more = append(more, []byte(ca))
	}
	files, err := filepath.Glob(filepath.Join(certsDir, host, "*.crt"))
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "find the CA certificates of registry %s: %w", host, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, sandbox.Errorf(sandbox.Invalid, "read the CA certificates of registry %s: %w", host, err)
		}
		more = append(more, content)
	}
	if len(more) == 0 {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "read the system's CA certificates: %w", err)
	}
	for _, content := range more {
		if !pool.AppendCertsFromPEM(content) {
			return nil, sandbox.Errorf(sandbox.Invalid,
				"the CA certificate of registry %s is not PEM; PEM starts with -----BEGIN CERTIFICATE-----",
				host)
		}
	}
	return pool, nil
}
