package cloudflaretest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/faulttest"
)

// Proxy stands before an account's API and before the Workers that run on it, and can misbehave.
type Proxy struct {
	faulttest.Switch
	// URL is the API's address, for deploy.Config.
	URL string

	t      testing.TB
	mu     sync.Mutex        // guards what follows
	fronts map[string]string // of a Worker, by its real address
	ends   []func()
}

// NewProxy starts a proxy before an account. It ends with the test.
func NewProxy(t testing.TB, a *Account) *Proxy {
	t.Helper()
	p := &Proxy{t: t, fronts: map[string]string{}}
	t.Cleanup(p.end)
	api, path, _ := strings.Cut(a.URL, "/client")
	p.URL = p.before(api, p.leadToFronts) + "/client" + path
	return p
}

// before starts a proxy before a server, and returns its address. The caller holds mu, or is the only one.
func (p *Proxy) before(server string, modify func(*http.Response) error) string {
	to, err := url.Parse(server)
	if err != nil {
		p.t.Errorf("a proxy before %q: %v", server, err)
	}
	transport := &http.Transport{}
	forward := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(to) },
		FlushInterval:  -1,
		Transport:      transport,
		ModifyResponse: modify,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	front := httptest.NewServer(p.Before(forward))
	p.ends = append(p.ends, func() {
		front.CloseClientConnections()
		front.Close()
		transport.CloseIdleConnections()
	})
	return front.URL
}

func (p *Proxy) end() {
	p.Set(nil)
	p.mu.Lock()
	ends := p.ends
	p.mu.Unlock()
	for _, end := range ends {
		end()
	}
}

var localURL = regexp.MustCompile(`"local_url":"([^"]+)"`)

// leadToFronts makes the API return the addresses of proxies in place of Workers.
func (p *Proxy) leadToFronts(r *http.Response) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if err := r.Body.Close(); err != nil {
		return err
	}
	body = localURL.ReplaceAllFunc(body, func(found []byte) []byte {
		return fmt.Appendf(nil, `"local_url":%q`, p.front(string(localURL.FindSubmatch(found)[1])))
	})
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Length", fmt.Sprint(len(body)))
	return nil
}

func (p *Proxy) front(worker string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fronts[worker] == "" {
		p.fronts[worker] = p.before(worker, nil)
	}
	return p.fronts[worker]
}
