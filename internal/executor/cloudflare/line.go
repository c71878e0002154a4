package cloudflare

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"
)

// newClient returns a client whose connections tell when they break.
func newClient() *http.Client {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &line{Conn: c}, nil
		},
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute,
	}}
}

// line is a connection that tells when it breaks. net/http returns from a request whose connection breaks only
// once it has stopped writing, and so waits for a body that stays open: whoever sends one has to close it then.
type line struct {
	net.Conn
	mu     sync.Mutex // guards what follows
	broken bool
	tell   func()
}

// Read implements net.Conn.
func (l *line) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if err != nil {
		l.breakOff()
	}
	return n, err
}

func (l *line) breakOff() {
	l.mu.Lock()
	tell := l.tell
	l.broken, l.tell = true, nil
	l.mu.Unlock()
	if tell != nil {
		tell()
	}
}

// onBreak has tell called once the connection breaks, at once if it has.
func (l *line) onBreak(tell func()) {
	l.mu.Lock()
	broken := l.broken
	l.tell = tell
	l.mu.Unlock()
	if broken {
		tell()
	}
}

// whenBroken has tell called once the connection breaks that a request of ctx is sent on, or ctx ends.
func whenBroken(ctx context.Context, tell func()) (context.Context, func() bool) {
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		c := info.Conn
		if secure, ok := c.(interface{ NetConn() net.Conn }); ok {
			c = secure.NetConn()
		}
		if l, ok := c.(*line); ok {
			l.onBreak(tell)
		}
	}})
	return traced, context.AfterFunc(ctx, tell)
}
