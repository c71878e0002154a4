package docker_test

import (
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/control"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// corporate is the only way out of a network: a proxy on the engine's host, with TLS and a certificate of a private
// authority. It connects every request to the test's outside.
type corporate struct {
	outside string

	mu    sync.Mutex // guards asked
	asked []string
}

func (c *corporate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.asked = append(c.asked, r.Method+" "+r.RequestURI+" "+r.Header.Get("Proxy-Authorization"))
	c.mu.Unlock()
	_, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		port = "80"
	}
	server, err := net.Dial("tcp", net.JoinHostPort(c.outside, port))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer server.Close()
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	if r.Method == http.MethodConnect {
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n") // a client that has gone needs no answer
		go func() { _, _ = io.Copy(server, conn) }()           // ends with the connections
	} else if err := r.Write(server); err != nil {
		return
	}
	_, _ = io.Copy(conn, server)
}

func TestAGatewayGoesThroughAProxyThatAPrivateAuthorityVouchesFor(t *testing.T) {
	t.Parallel()
	c := &corporate{}
	server := httptest.NewUnstartedServer(c)
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	must(t, err)
	must(t, server.Listener.Close())
	server.Listener = listener
	server.StartTLS()
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	address, err := url.Parse(server.URL)
	must(t, err)
	// The host is the name in the certificate.
	settings := &control.Upstream{URL: "https://ann:mellon@example.com:" + address.Port(), CA: string(authority)}
	r := newRestrictedOf(t, func(r *restricted) {
		n, err := r.api.NetworkInspect(t.Context(), r.network, dockerapi.NetworkInspectOptions{})
		must(t, err)
		c.outside = r.outside
		r.config.Gateway.Hosts = []string{"example.com:" + n.IPAM.Config[0].Gateway}
		r.config.Gateway.Upstream, r.config.Gateway.DNS = settings, []string{"192.0.2.53"}
	})
	h := r.spawn(t)
	for url, want := range map[string]string{
		"https://good.test/": "reached host=good.test sni=good.test",
		"http://good.test/":  "reached host=good.test sni=",
		"https://evil.test/": "blocked: ",
	} {
		if got := r.probe(t, h, "get", url); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	const password = "Basic YW5uOm1lbGxvbg=="
	slices.Sort(c.asked)
	if want := []string{
		"CONNECT good.test:443 " + password, "GET http://good.test/ " + password,
	}; !slices.Equal(c.asked, want) {
		t.Errorf("the proxy was asked for %q, want %q", c.asked, want)
	}
	gateway, err := r.api.ContainerInspect(t.Context(), r.gateway())
	must(t, err)
	if !slices.Equal(gateway.HostConfig.DNS, []string{"192.0.2.53"}) ||
		gateway.HostConfig.NetworkMode.UserDefined() != r.network {
		t.Errorf("the gateway asks %v and is on %s", gateway.HostConfig.DNS, gateway.HostConfig.NetworkMode)
	}
	if text := fmt.Sprintf("%+v %+v", gateway.Config, gateway.HostConfig); strings.Contains(text, "mellon") {
		t.Error("the engine shows the proxy's password")
	}
}

// Only the given name server knows the name, and the gateway finds it there.
func TestGatewaysAskTheGivenNameServer(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		servers func(r *restricted) []string
		want    string
	}{
		"the given one": {func(r *restricted) []string { return []string{r.outside} },
			"reached host=named.test sni=named.test"},
		"those of the engine": {func(*restricted) []string { return nil }, "blocked: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRestrictedOf(t, func(r *restricted) { r.config.Gateway.DNS = row.servers(r) })
			r.egress.Allow = append(r.egress.Allow, sandbox.EgressRule{Host: "named.test"},
				sandbox.EgressRule{Host: "unnamed.test"})
			r.allow(t, r.egress)
			h := r.spawn(t)
			if got := r.probe(t, h, "get", "https://named.test/"); !strings.HasPrefix(got, row.want) {
				t.Errorf("%q, want %q", got, row.want)
			}
			if got := r.probe(t, h, "get", "https://unnamed.test/"); !strings.HasPrefix(got, "blocked: ") {
				t.Errorf("a name that no server knows: %q", got)
			}
		})
	}
}

func TestAnAuthorityThatVouchesForAnotherProxyLetsNothingOut(t *testing.T) {
	t.Parallel()
	trusted, used := httptest.NewTLSServer(nil), httptest.NewUnstartedServer(&corporate{})
	t.Cleanup(trusted.Close)
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	must(t, err)
	must(t, used.Listener.Close())
	used.Listener = listener
	used.StartTLS()
	t.Cleanup(used.Close)
	address, err := url.Parse(used.URL)
	must(t, err)
	r := newRestrictedOf(t, func(r *restricted) {
		n, err := r.api.NetworkInspect(t.Context(), r.network, dockerapi.NetworkInspectOptions{})
		must(t, err)
		r.config.Gateway.Hosts = []string{"elsewhere.test:" + n.IPAM.Config[0].Gateway}
		// The certificate does not name the host.
		r.config.Gateway.Upstream = &control.Upstream{URL: "https://elsewhere.test:" + address.Port(),
			CA: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: trusted.Certificate().Raw}))}
	})
	if got := r.probe(t, r.spawn(t), "get", "https://good.test/"); !strings.HasPrefix(got, "blocked: ") {
		t.Errorf("it says %q", got)
	}
}
