package credential

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/wholefile"
)

// Files in the gateway's directory. Sandboxes get links to the last two.
const (
	keyFile = "authority.key"
	// CertificateFile is the authority's certificate, for programs that add it to their trusted ones.
	CertificateFile = "authority.pem"
	// BundleFile has that certificate and all public authorities, for programs that trust a single file.
	BundleFile = "ca-bundle.pem"
)

const (
	// authorityLife is longer than any environment lives. If the volume is lost, a new authority is created.
	authorityLife = 10 * 365 * 24 * time.Hour
	// leafLife is the validity of a host's certificate. It is replaced when renewBefore of it is left.
	leafLife, renewBefore = 7 * 24 * time.Hour, 24 * time.Hour
	// backdate allows for a sandbox with a slow clock.
	backdate = 24 * time.Hour
)

// authority signs the certificates of hosts. Only the sandboxes of one environment trust it.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey

	mu     sync.Mutex // guards leaves
	leaves map[string]*tls.Certificate
}

// readAuthority reads the authority of a directory. Errors: fs.ErrNotExist if there is none.
func readAuthority(dir string) (*authority, error) {
	// newAuthority writes the key last: without it, the authority is incomplete.
	der, err := readPEM(filepath.Join(dir, keyFile))
	if err != nil {
		return nil, err
	}
	key, err := x509.ParseECPrivateKey(der)
	if err != nil {
		return nil, err
	}
	if der, err = readPEM(filepath.Join(dir, CertificateFile)); err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err == nil && !key.PublicKey.Equal(cert.PublicKey) {
		err = errors.New("its key is not that of its certificate")
	}
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, leaves: make(map[string]*tls.Certificate)}, nil
}

func readPEM(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s is not in PEM", path)
	}
	return block.Bytes, nil
}

// newAuthority creates the authority of a directory.
func newAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:  pkix.Name{CommonName: "Sandbox gateway"},
		NotAfter: time.Now().Add(authorityLife), NotBefore: time.Now().Add(-backdate),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
	}
	der, err := sign(template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	own := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	all := own
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue // a program that reads only a file cannot honour the constraint
		}
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})...)
	}
	for _, f := range []struct {
		name    string
		content []byte
		mode    fs.FileMode
	}{
		{CertificateFile, own, 0o644}, {BundleFile, all, 0o644},
		{keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), 0o600},
	} {
		if err := wholefile.WriteDurable(filepath.Join(dir, f.name), f.content, f.mode); err != nil {
			return nil, err
		}
	}
	return &authority{cert: cert, key: key, leaves: make(map[string]*tls.Certificate)}, nil
}

func sign(template, parent *x509.Certificate, public *ecdsa.PublicKey, key *ecdsa.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	return x509.CreateCertificate(rand.Reader, template, parent, public, key)
}

// leaf returns the certificate of a host.
func (a *authority) leaf(host string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.leaves[host]; c != nil && time.Until(c.Leaf.NotAfter) > renewBefore {
		return c, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	// A common name has at most 64 bytes. Clients read the name from DNSNames.
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: host[:min(len(host), 64)]}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-backdate), NotAfter: time.Now().Add(leafLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := sign(template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	c := &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key, Leaf: parsed}
	a.leaves[host] = c
	return c, nil
}
