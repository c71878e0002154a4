package reconciler

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	unixPrefix = "unix://"
	// socketMode gives access to the owner and the group of a unix socket.
	socketMode = 0o660
	// certificateEvery is how often handshakes check the certificate's files for changes.
	certificateEvery = time.Second
)

// socket returns the path of a unix:// address, "" for other addresses.
func socket(listen string) string {
	path, is := strings.CutPrefix(listen, unixPrefix)
	if !is {
		return ""
	}
	return path
}

// checkListen fails for an address that would serve other machines in plain text, unless Insecure. Errors: Invalid.
func (c *Config) checkListen() error {
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return sandbox.Errorf(sandbox.Invalid, "--tls-cert and --tls-key must be set together")
	}
	if path := socket(c.Listen); path != "" || strings.HasPrefix(c.Listen, unixPrefix) {
		if !strings.HasPrefix(path, "/") {
			return sandbox.Errorf(sandbox.Invalid,
				"--listen %s: the path of a unix socket must be absolute, as in unix:///run/sandbox/api.sock", c.Listen)
		}
		return nil
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return sandbox.Errorf(sandbox.Invalid, "--listen %s: %w: want host:port, or unix:///path", c.Listen, err)
	}
	if !c.isPlain() || len(c.TrustedProxies) > 0 || c.Insecure {
		return nil
	}
	return sandbox.Errorf(sandbox.Invalid, "--listen %s is reachable from other machines, so tokens would cross the "+
		"network in plain text: set --tls-cert and --tls-key, or listen on 127.0.0.1 behind a proxy, or set "+
		"--trusted-proxy to the proxy's network; --insecure serves in plain text anyway", c.Listen)
}

// isPlain reports whether other machines reach the TCP address in plain text.
func (c *Config) isPlain() bool {
	host, _, err := net.SplitHostPort(c.Listen)
	ip := net.ParseIP(host)
	return err == nil && c.TLSCert == "" && host != "localhost" && (ip == nil || !ip.IsLoopback())
}

// proxies parses TrustedProxies. Errors: Invalid.
func (c *Config) proxies() ([]net.IPNet, error) {
	networks := make([]net.IPNet, len(c.TrustedProxies))
	for i, text := range c.TrustedProxies {
		_, network, err := net.ParseCIDR(text)
		if err != nil {
			return nil, sandbox.Errorf(sandbox.Invalid,
				"--trusted-proxy %s: want a network such as 10.0.0.0/8, or 192.0.2.7/32 for one address", text)
		}
		networks[i] = *network
	}
	return networks, nil
}

// listen opens the address. Errors: Unavailable.
func (c *Config) listen(ctx context.Context) (net.Listener, error) {
	var l net.ListenConfig
	path := socket(c.Listen)
	if path == "" {
		listener, err := l.Listen(ctx, "tcp", c.Listen)
		if err != nil {
			return nil, sandbox.Errorf(sandbox.Unavailable, "listening on %s: %w; choose another address with --listen",
				c.Listen, err)
		}
		return listener, nil
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	listener, err := l.Listen(ctx, "unix", path)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable,
			"listening on %s: %w; check that its directory exists and that this user may write to it", c.Listen, err)
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(sandbox.Errorf(sandbox.Unavailable, "setting the permissions of %s: %w", path, err),
			listener.Close())
	}
	return listener, nil
}

// isStale reports whether a path is the socket of a killed reconciler: no process accepts connections on it. Errors:
// Invalid if the path is something else; Unavailable if a program serves there.
func isStale(ctx context.Context, path string) (bool, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, sandbox.Errorf(sandbox.Invalid, "--listen unix://%s: %w", path, err)
	case info.Mode()&fs.ModeSocket == 0:
		return false, sandbox.Errorf(sandbox.Invalid, "--listen: %s exists and is not a socket", path)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err == nil {
		return false, errors.Join(conn.Close(),
			sandbox.Errorf(sandbox.Unavailable, "listening on %s: another program serves on this socket", path))
	}
	return true, nil
}

// removeStale removes the socket of a killed reconciler. Errors: as isStale; Unavailable.
func removeStale(ctx context.Context, path string) error {
	stale, err := isStale(ctx, path)
	if err != nil || !stale {
		return err
	}
	if err := os.Remove(path); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "removing the stale socket %s: %w", path, err)
	}
	return nil
}

// certificate is the server's certificate. It reloads its files when they change.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu     sync.Mutex // guards the fields below
	now    *tls.Certificate
	read   [2]fileState // as of now
	looked time.Time
}

// loadCertificate reads a certificate and its key. Errors: Invalid.
func loadCertificate(certFile, keyFile string, log *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log}
	return c, c.reload()
}

// reload reloads the files. After an error the old certificate stays in use. Errors: Invalid.
func (c *certificate) reload() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.load()
}

func (c *certificate) load() error {
	state := c.state() // before the read, so that a later change is detected
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return sandbox.Errorf(sandbox.Invalid, "reading the certificate in %s with the key in %s: %w",
			c.certFile, c.keyFile, err)
	}
	c.now, c.read = &pair, state
	return nil
}

func (c *certificate) state() (s [2]fileState) {
	for i, file := range []string{c.certFile, c.keyFile} {
		s[i] = stateOf(file)
	}
	return s
}

// get returns the certificate for a handshake.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.looked) >= certificateEvery {
		c.looked = now
		if state := c.state(); state != c.read {
			if err := c.load(); err != nil { // perhaps only one of the two files is replaced yet
				c.log.Warn("reconciler: the certificate has changed but cannot be loaded; the old one stays in use", "error", err)
			} else {
				c.log.Info("reconciler: reloaded the certificate", "file", c.certFile)
			}
		}
	}
	return c.now, nil
}

// name returns the first host name that the certificate is for, "" if it has only patterns and addresses.
func (c *certificate) name() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range c.now.Leaf.DNSNames {
		if !strings.HasPrefix(name, "*") {
			return name
		}
	}
	return ""
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
}
