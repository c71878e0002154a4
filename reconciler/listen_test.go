package reconciler_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/servetest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// install is a directory with the files that serve reads.
type install struct{ *servetest.Install }

func newInstall(t *testing.T) *install {
	t.Helper()
	return &install{servetest.New(t)}
}

// served is a reconciler in this process.
type served struct{ *servetest.Served }

// serve serves until the test ends.
func (i *install) serve(change func(*reconciler.Config)) *served {
	i.Helper()
	return &served{i.Serve(change)}
}

// certify writes a certificate with a serial number for 127.0.0.1 and host names, and its key.
func (i *install) certify(serial int64, names ...string) {
	i.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(serial),
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:              names,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		i.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		i.Fatal(err)
	}
	i.Write("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	i.Write("cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
}

// serial returns the serial number of the certificate that the server presents.
func (s *served) serial(most uint16) (int64, error) {
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: most}} //nolint:gosec // what is looked at
	conn, err := d.DialContext(s.Context(), "tcp", s.Address)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil //nolint:forcetypeassert // a tls.Dialer's
}

func TestTLSIsServedWithACertificateThatMayBeReplaced(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	i.certify(1)
	s := i.serve(func(c *reconciler.Config) { c.TLSCert, c.TLSKey = i.Dir+"/cert.pem", i.Dir+"/key.pem" })
	if _, err := s.serial(tls.VersionTLS11); err == nil {
		t.Error("TLS 1.1 is served")
	}
	if got, err := s.serial(tls.VersionTLS12); err != nil || got != 1 {
		t.Errorf("certificate %d is shown: %v", got, err)
	}
	roots := x509.NewCertPool()
	authority, err := os.ReadFile(i.Dir + "/cert.pem")
	if err != nil || !roots.AppendCertsFromPEM(authority) {
		t.Fatal(err)
	}
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13},
		ForceAttemptHTTP2: true,
	}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.Address+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Body.Close(); err != nil || a.StatusCode != http.StatusOK || a.ProtoMajor != 2 {
		t.Errorf("%s %s, %v", a.Proto, a.Status, err)
	}
	i.Write("key.pem", "half of a pair")
	s.Reload()
	if got, err := s.serial(tls.VersionTLS13); err != nil || got != 1 {
		t.Errorf("with half of a new pair, certificate %d is shown: %v", got, err)
	}
	i.certify(2)
	s.Reload()
	if got, err := s.serial(tls.VersionTLS13); err != nil || got != 2 {
		t.Errorf("asked to read it again, it shows certificate %d: %v", got, err)
	}
	i.certify(33)
	testwait.NoError(t, 20*time.Second, "the certificate of the changed files is shown", func() error {
		got, err := s.serial(tls.VersionTLS13)
		if err == nil && got != 33 {
			err = fmt.Errorf("certificate %d is shown", got)
		}
		return err
	})
}

func (s *served) leases(token string) error {
	s.Helper()
	c, err := client.New(client.Config{URL: "http://" + s.Address, Token: token, Attempts: 1})
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, err = c.ListLeases(s.Context(), sandbox.LeaseFilter{})
	return err
}

func TestCredentialsInFilesAreReadAgain(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	old, next := access.NewToken(), access.NewToken()
	i.Write("tokens", "test "+old+"\n")
	s := i.serve(func(*reconciler.Config) {})
	if err := s.leases(old); err != nil {
		t.Fatal(err)
	}
	secret := webhook.NewSecret()
	i.Write("secrets", secret+"\n")
	i.Write("tokens", "test "+next+"\n")
	s.Reload()
	if before, after := s.leases(old), s.leases(next); sandbox.CodeOf(before) != sandbox.Unauthenticated || after != nil {
		t.Errorf("the old token: %v, the new one: %v", before, after)
	}
	if err := s.Deliver(secret, "m-1"); err != nil {
		t.Errorf("signed with the new secret: %v", err)
	}
	i.Write("tokens", "broken")
	s.Reload()
	if err := s.leases(next); err != nil {
		t.Errorf("after a file that cannot be read: %v", err)
	}
}

func TestAUnixSocketIsForItsOwnerAndGroup(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	token := access.NewToken()
	i.Write("tokens", "test "+token+"\n")
	dir, err := os.MkdirTemp("", "s") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: dir + "/s"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false) // like the socket of a killed reconciler
	if err := stale.Close(); err != nil {
		t.Fatal(err)
	}
	s := i.serve(func(c *reconciler.Config) { c.Listen = "unix://" + dir + "/s" })
	if info, err := os.Stat(dir + "/s"); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("%v, %v", info, err)
	}
	c, err := client.New(client.Config{URL: s.Config.Listen, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.ListLeases(t.Context(), sandbox.LeaseFilter{}); err != nil {
		t.Error(err)
	}
	if err := reconciler.Serve(t.Context(), s.Config, nil); sandbox.CodeOf(err) != sandbox.Unavailable ||
		!strings.Contains(err.Error(), "another program serves") {
		t.Errorf("a second one on the same socket: %v", err)
	}
}
