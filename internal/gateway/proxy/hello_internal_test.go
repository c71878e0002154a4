package proxy

import (
	"bytes"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"testing/iotest"
)

// FuzzHello looks for bytes that pass as a hello for a host without naming it, and for bytes that are lost.
func FuzzHello(f *testing.F) {
	f.Add([]byte{recordHandshake, 3, 1, 0, 5, 1, 0, 0, 1, 0})
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	for _, hello := range sampleHellos(f) {
		f.Add(hello)
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		const host = "good.example"
		raw, refusal := readHello(t.Context(), bytes.NewReader(input), host)
		if !bytes.HasPrefix(input, raw) {
			t.Error("what was read is not what came")
		}
		if refusal == nil && !strings.Contains(strings.ToLower(withoutRecords(raw)), host) {
			t.Error("it names the host nowhere")
		}
		if _, again := readHello(t.Context(), iotest.OneByteReader(bytes.NewReader(input)),
			host); (again == nil) != (refusal == nil) {
			t.Errorf("in one piece: %v; byte by byte: %v", refusal, again)
		}
	})
}

// withoutRecords removes the headers of TLS records.
func withoutRecords(raw []byte) string {
	var text []byte
	for len(raw) >= 5 {
		n := min(int(raw[3])<<8|int(raw[4]), len(raw)-5)
		text, raw = append(text, raw[5:5+n]...), raw[5+n:]
	}
	return string(text)
}

// sampleHellos are hellos of several kinds of clients.
func sampleHellos(t testing.TB) [][]byte {
	t.Helper()
	var list [][]byte
	for _, cfg := range []*tls.Config{
		{ServerName: "good.example"},
		{ServerName: "good.example", MaxVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}},
		{ServerName: "evil.example"},
		{InsecureSkipVerify: true},
	} {
		near, far := net.Pipe()
		go func() {
			_ = tls.Client(near, cfg).Handshake() // it breaks off
			_ = near.Close()
		}()
		b := make([]byte, maxHello)
		n, err := far.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		_ = far.Close()
		list = append(list, b[:n])
	}
	return list
}
