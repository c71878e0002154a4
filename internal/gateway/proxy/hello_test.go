package proxy_test

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"net"
	"testing"
)

// helloFor returns the ClientHello of a client for a host, as one record.
func helloFor(t testing.TB, host string) []byte {
	t.Helper()
	near, far := net.Pipe()
	go func() {
		_ = tls.Client(near, &tls.Config{ServerName: host, InsecureSkipVerify: true}).Handshake() // it breaks off
		_ = near.Close()
	}()
	b := make([]byte, 32<<10)
	n, err := far.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	_ = far.Close()
	return b[:n]
}

// addExtension adds an extension to a hello in one record.
func addExtension(hello []byte, kind uint16, content []byte) []byte {
	b := bytes.Clone(hello)
	extension := binary.BigEndian.AppendUint16(nil, kind)
	extension = binary.BigEndian.AppendUint16(extension, uint16(len(content)))
	extension = append(extension, content...)
	at := 5 + 4 + 2 + 32
	at += 1 + int(b[at])                           // session id
	at += 2 + int(binary.BigEndian.Uint16(b[at:])) // cipher suites
	at += 1 + int(b[at])                           // compression methods
	add := func(i int) { binary.BigEndian.PutUint16(b[i:], binary.BigEndian.Uint16(b[i:])+uint16(len(extension))) }
	add(3)  // of the record
	add(7)  // of the message: the lower two of three bytes
	add(at) // of the extensions
	return append(b, extension...)
}

// serverName is the content of a server_name extension.
func serverName(host string) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(len(host)+3))
	b = append(b, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(host)))
	return append(b, host...)
}

// refragment puts a hello into records of n bytes.
func refragment(hello []byte, n int) []byte {
	var b []byte
	for rest := hello[5:]; len(rest) > 0; {
		piece := rest[:min(n, len(rest))]
		b = append(b, hello[:3]...)
		b = binary.BigEndian.AppendUint16(b, uint16(len(piece)))
		b = append(b, piece...)
		rest = rest[len(piece):]
	}
	return b
}

// endless is a hello that claims 60,000 bytes and continues beyond what the gateway reads.
func endless() []byte {
	message := append([]byte{1, 0, 0xea, 0x60, 3, 3}, make([]byte, 48<<10)...)
	return refragment(append([]byte{0x16, 3, 1, 0, 0}, message...), 16<<10)
}
