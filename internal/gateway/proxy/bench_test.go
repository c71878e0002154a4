package proxy_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/proxy"
)

// BenchmarkLatency compares connections through the gateway with direct ones, alternating in one run, by their medians:
// the time until TLS is established, and the time of one request.
func BenchmarkLatency(b *testing.B) {
	w := newWorld(b, proxy.Limits{})
	direct := func() net.Conn {
		conn, err := net.Dial("tcp", w.out.local("203.0.114.1:443"))
		if err != nil {
			b.Fatal(err)
		}
		return conn
	}
	through := func() net.Conn { return w.tunnel("good.example:443") }
	var connect, request [2][]time.Duration
	for b.Loop() {
		for i, dial := range []func() net.Conn{direct, through} {
			c, r := exchange(b, w, dial)
			connect[i], request[i] = append(connect[i], c), append(request[i], r)
		}
	}
	report := func(what string, of [2][]time.Duration) {
		b.ReportMetric(median(of[0]), what+"-direct-ms")
		b.ReportMetric(median(of[1])-median(of[0]), what+"-added-ms")
	}
	report("connect", connect)
	report("request", request)
}

// exchange returns the time to establish a connection, and that of a request on it.
func exchange(b *testing.B, w *world, dial func() net.Conn) (connect, request time.Duration) {
	b.Helper()
	began := time.Now()
	conn := tls.Client(dial(), &tls.Config{ServerName: "good.example", RootCAs: w.out.roots})
	defer conn.Close()
	if err := conn.Handshake(); err != nil {
		b.Fatal(err)
	}
	stands := time.Now()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: good.example\r\n\r\n"); err != nil {
		b.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil {
		_, err = io.Copy(io.Discard, res.Body)
	}
	if err != nil {
		b.Fatal(err)
	}
	return stands.Sub(began), time.Since(stands)
}

// median returns the median in milliseconds.
func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2]) / float64(time.Millisecond)
}
