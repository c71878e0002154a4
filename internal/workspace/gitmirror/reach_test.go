package gitmirror_test

import (
	"encoding/pem"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gitmirror"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gittest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// withTLS serves a server's repositories with TLS, and returns the URL and a file with the certificate.
func withTLS(t *testing.T, s *gittest.Server) (address, file string) {
	t.Helper()
	to, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(to))
	t.Cleanup(front.Close)
	file = filepath.Join(t.TempDir(), "ca.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw})
	if err := os.WriteFile(file, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	return front.URL, file
}

func TestAFileOfCertificatesIsTrustedBesideThoseOfTheMachine(t *testing.T) {
	t.Parallel()
	server := gittest.New(t)
	server.Repository("app", map[string]string{"a": "one"})
	address, file := withTLS(t, server)
	allow := func(c *gitmirror.Config) { c.Allow = []string{address} }
	src := gitmirror.Source{URL: address + "/app"}
	wantRefused(t, newStore(t, nil, allow), src, "certificate")
	trusts := newStore(t, nil, allow, func(c *gitmirror.Config) { c.CAFile = file })
	if c := checkout(t, trusts, src); c.Commit == "" {
		t.Error("there is no commit")
	}
}

func TestFetchesGoThroughTheProxyAndNowhereElse(t *testing.T) {
	t.Parallel()
	server := gittest.New(t)
	repo := server.Repository("app", map[string]string{"a": "one"})
	var asked atomic.Int64
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) { asked.Add(1) }})
	t.Cleanup(proxy.Close)
	store := newStore(t, server, func(c *gitmirror.Config) { c.Proxy = proxy.URL })
	if c := checkout(t, store, gitmirror.Source{URL: repo.URL}); c.Commit == "" || asked.Load() < 2 {
		t.Errorf("the proxy had %d requests", asked.Load())
	}
	proxy.Close()
	_, err := store.Checkout(t.Context(), gitmirror.Source{URL: repo.URL})
	if sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("without the proxy, the error is %v", err)
	}
}

func TestSettingsThatCannotBeUsedAreRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]gitmirror.Config{
		"a proxy without a scheme": {Proxy: "proxy.example.com:3128"},
		"a missing file":           {CAFile: empty + ".missing"},
		"a file without any":       {CAFile: empty},
	} {
		if _, err := gitmirror.New(c); sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
}
