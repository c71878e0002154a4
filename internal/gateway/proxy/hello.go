package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/policy"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The reasons to refuse a TLS connection because of its first message.
const (
	NotTLS         policy.Reason = "not_tls"
	NoServerName   policy.Reason = "no_server_name"
	OtherName      policy.Reason = "server_name_mismatch"
	EncryptedHello policy.Reason = "encrypted_client_hello"
	NoRequest      policy.Reason = "no_request" // nothing arrived in time
)

const (
	recordHandshake = 0x16 // the first byte of a TLS connection
	// maxHello limits a ClientHello including record headers, in bytes. Browsers send less than 3 KiB,
	// including post-quantum keys.
	maxHello = 32 << 10
	// extensionECH is the type of encrypted_client_hello (RFC 9849).
	extensionECH = 0xfe0d
)

// alertRefused is the answer to a TLS client: a fatal alert, access_denied.
var alertRefused = []byte{0x15, 3, 1, 0, 2, 2, 49}

var errHelloRead = errors.New("the hello has been read")

// readHello reads a TLS ClientHello, in any number of records, and checks that it names host. It returns all bytes that
// it has read. It answers and decrypts nothing: it runs the standard library's server until that has parsed the
// message.
func readHello(ctx context.Context, in io.Reader, host string) ([]byte, *policy.Refusal) {
	var raw bytes.Buffer
	limited := &io.LimitedReader{R: in, N: maxHello}
	var hello *tls.ClientHelloInfo
	server := tls.Server(listening{in: io.TeeReader(limited, &raw)}, &tls.Config{
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			hello = h
			return nil, errHelloRead
		},
	})
	err := server.HandshakeContext(ctx)
	switch {
	case hello != nil:
		return raw.Bytes(), checkHello(hello, host)
	case limited.N <= 0:
		return raw.Bytes(), policy.Refuse(NotTLS, "%s: the TLS hello has more than %d bytes", host, maxHello)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), isTimeout(err):
		return raw.Bytes(), policy.Refuse(NoRequest, "%s: no complete TLS hello arrived", host)
	default:
		return raw.Bytes(), policy.Refuse(NotTLS, "%s: the data is not a TLS hello", host)
	}
}

func checkHello(hello *tls.ClientHelloInfo, host string) *policy.Refusal {
	if slices.Contains(hello.Extensions, extensionECH) {
		// The outer name does not reveal the inner one, and padding (GREASE) looks the same.
		return policy.Refuse(EncryptedHello,
			"%s: the TLS hello is encrypted (ECH), so its name cannot be checked: turn that off in the client", host)
	}
	if hello.ServerName == "" {
		return policy.Refuse(NoServerName, "%s: the TLS hello names no server (SNI)", host)
	}
	name, err := sandbox.CanonicalHost(hello.ServerName)
	if err != nil || name != host {
		return policy.Refuse(OtherName, "%s: the TLS hello names another server, %q", host, hello.ServerName)
	}
	return nil
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// listening is a connection that drops all writes.
type listening struct {
	net.Conn
	in io.Reader
}

func (l listening) Read(p []byte) (int, error) { return l.in.Read(p) }
func (listening) Write(p []byte) (int, error)  { return len(p), nil } // an alert
func (listening) Close() error                 { return nil }
