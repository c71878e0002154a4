//go:build linux

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"sync"
	"time"
)

var errHello = errors.New("the hello is read")

// readHello reads the hello of a TLS client, and returns the requested server name and the bytes.
func readHello(c net.Conn) (name string, raw []byte, err error) {
	var read bytes.Buffer
	server := tls.Server(&overheard{c, io.TeeReader(io.LimitReader(c, maxHead), &read)}, &tls.Config{
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			name = h.ServerName
			return nil, errHello
		},
	})
	if err := server.Handshake(); !errors.Is(err, errHello) {
		return "", nil, fmt.Errorf("read a TLS hello: %w", err)
	}
	return name, read.Bytes(), nil
}

// overheard is a connection to which nothing is written.
type overheard struct {
	net.Conn
	from io.Reader
}

func (o *overheard) Read(p []byte) (int, error)  { return o.from.Read(p) }
func (o *overheard) Write(p []byte) (int, error) { return len(p), nil }

// authority is a certificate authority that signs for every name. It ends with the container.
type authority struct {
	pem  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey

	mu    sync.Mutex // guards names
	names map[string]*tls.Certificate
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sandbox local authority"},
		IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return &authority{pem: text, cert: cert, key: key, names: map[string]*tls.Certificate{}}, nil
}

// certificate creates the certificate of a name, once.
func (a *authority) certificate(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known := a.names[h.ServerName]; known != nil {
		return known, nil
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(int64(len(a.names)) + 2), Subject: pkix.Name{CommonName: "intercepted"},
		DNSNames:  []string{h.ServerName},
		NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &a.key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	made := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}
	a.names[h.ServerName] = made
	return made, nil
}
