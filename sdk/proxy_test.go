package sdk_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// proxy is a proxy of a reconciler that tests kill and start. It causes the faults of a network.
type proxy struct {
	url string

	mu     sync.Mutex // guards the fields below
	target *url.URL
	faults []*fault
}

// fault affects the next requests whose method and path match.
type fault struct {
	method, path string // a part of the path
	times        int
	// status is an answer that replaces the reconciler's.
	status int
	// lost means that the reconciler handles the request, but its answer is lost.
	lost bool
	// after cuts the answer after this many bytes of its body.
	after int
	seen  int
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	p := &proxy{}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

// to sets the address of the reconciler.
func (p *proxy) to(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = &url.URL{Scheme: "http", Host: address}
}

func (p *proxy) add(f fault) *fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, &f)
	return &f
}

// count returns how many requests a fault has affected.
func (p *proxy) count(f *fault) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return f.seen
}

func (p *proxy) next(r *http.Request) (*url.URL, *fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.faults {
		if f.seen < f.times && r.Method == f.method && strings.Contains(r.URL.Path, f.path) {
			f.seen++
			return p.target, f
		}
	}
	return p.target, nil
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	target, f := p.next(r)
	if f != nil && f.status != 0 {
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(f.status)
		return
	}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = target.Host
		},
		FlushInterval: -1,
		// A reconciler that is down breaks the connection.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     nil,
	}
	if f != nil {
		forward.ModifyResponse = func(answer *http.Response) error {
			if f.lost {
				_, _ = io.Copy(io.Discard, answer.Body) // the reconciler must have finished
				panic(http.ErrAbortHandler)
			}
			answer.Header.Del("Content-Length")
			answer.ContentLength = -1
			answer.Body = &cut{ReadCloser: answer.Body, left: f.after}
			return nil
		}
	}
	forward.ServeHTTP(w, r)
}

// cut fails after a number of bytes.
type cut struct {
	io.ReadCloser
	left int
}

func (c *cut) Read(b []byte) (int, error) {
	if c.left == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.ReadCloser.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

// clear ends all faults.
func (p *proxy) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = nil
}
