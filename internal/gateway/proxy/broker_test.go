package proxy_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/credential"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/proxy"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const token = "Bearer hunter2-that-no-sandbox-may-hold"

// brokered is a world with a sandbox that trusts the gateway, and a credential for good.example.
func brokered(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, proxy.Limits{Brokered: 2})
	w.path = w.add("box-2", "did:plc:ann", true)
	w.credential("Authorization", token)
	return w
}

func (w *world) credential(header, value string) {
	w.t.Helper()
	err := w.credentials.Set(credential.Config{Credentials: map[string]credential.Credential{
		"good.example": {Header: header, Value: sandbox.Secret(value)},
	}})
	if err != nil {
		w.t.Fatal(err)
	}
}

// trusting is a client in a sandbox that only trusts the gateway's authority.
func (w *world) trusting() *http.Client {
	c := w.client()
	c.Transport.(*http.Transport).TLSClientConfig.RootCAs = w.authority
	return c
}

func (w *world) request(method, address string, body io.Reader, header ...string) *http.Request {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, address, body)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

func TestACredentialIsAddedOutsideOfTheSandbox(t *testing.T) {
	w := brokered(t)
	c := w.trusting()
	for name, row := range map[string]struct {
		r    *http.Request
		want string
	}{
		"plain": {w.request("GET", "https://good.example/a?b=%2F&c", nil),
			`GET /a?b=%2F&c host=good.example tls=true body="" Authorization=` + token},
		"with a body": {w.request("POST", "https://good.example/a", strings.NewReader("text")),
			`POST /a host=good.example tls=true body="text" Authorization=` + token},
		"in place of another": {w.request("GET", "https://good.example/", nil, "authorization", "Bearer mine"),
			`GET / host=good.example tls=true body="" Authorization=` + token},
		"as a header of the connection": {w.request("GET", "https://good.example/", nil, "Connection", "Authorization"),
			`GET / host=good.example tls=true body="" Authorization=` + token},
	} {
		if status, got := w.asked(c, row.r); status != 200 || got != row.want {
			t.Errorf("%s: %d %s\nwant %s", name, status, got, row.want)
		}
	}
	r := w.request("POST", "https://good.example/", io.NopCloser(strings.NewReader("text")))
	r.Trailer = http.Header{"Authorization": {"Bearer mine"}}
	if _, got := w.asked(c, r); strings.Contains(got, "mine") || !strings.Contains(got, token) {
		t.Errorf("with a trailer: %s", got)
	}
	w.credential("Private-Token", "another")
	if _, got := w.asked(c, w.request("GET", "https://good.example/", nil, "Authorization", "Bearer mine")); !strings.HasSuffix(
		got, " Authorization=Bearer mine Private-Token=another") {
		t.Errorf("after a rotation: %s", got)
	}
	c.CloseIdleConnections()
	if r := w.closed(audit.TLS); r.Host != "good.example" || r.Port != 443 || r.Sent == 0 || r.Received == 0 || r.Address == "" {
		t.Errorf("the log has %+v", r)
	}
	eventually(t, "the connections end", func() bool { return w.proxy.Status().Connections == 0 })
	if strings.Contains(w.text.String(), "hunter2") {
		t.Error("the log has the credential")
	}
}

// TestACredentialIsForItsHostOnly: only over TLS, and only for sandboxes that trust the gateway.
func TestACredentialIsForItsHostOnly(t *testing.T) {
	w := brokered(t)
	if _, got := w.get(w.client(), "https://sub.good.example/"); strings.Contains(got, "Authorization") {
		t.Errorf("another host gets %s", got)
	}
	if _, got := w.get(w.client(), "http://good.example/"); strings.Contains(got, "Authorization") {
		t.Errorf("without TLS the host gets %s", got)
	}
	if _, err := w.client().Get("https://good.example/"); err == nil {
		t.Error("a client that does not trust the gateway reaches the host through it")
	}
	w.refused(proxy.CertificateRefused)
	w.path = w.add("box-3", "did:plc:ben", false)
	if _, got := w.get(w.client(), "https://good.example/"); got != `GET / host=good.example tls=true body=""` {
		t.Errorf("a sandbox without the gateway's authority gets %s", got)
	}
}

func TestRequestsThatCouldShowACredentialAreRefused(t *testing.T) {
	w := brokered(t)
	c := w.trusting()
	for name, row := range map[string]struct {
		r    *http.Request
		want string
	}{
		"trace":             {w.request("TRACE", "https://good.example/", nil), string(proxy.TraceRefused)},
		"another host":      {w.request("GET", "https://good.example/", nil), string(proxy.HostMismatch)},
		"http/2 in it":      {w.request("GET", "https://good.example/", nil, "Connection", "Upgrade", "Upgrade", "h2c"), string(proxy.UpgradeRefused)},
		"another proxy":     {w.request("CONNECT", "https://good.example/", nil), string(proxy.HostMismatch)},
		"an opaque address": {w.request("GET", "https://good.example/", nil), string(proxy.HostMismatch)},
	} {
		switch name {
		case "another host":
			row.r.Host = "evil.example"
		case "an opaque address":
			row.r.URL.Opaque = "http:http://evil.example/"
		}
		if status, got := w.asked(c, row.r); status != 403 || !strings.Contains(got, row.want) || strings.Contains(got, "hunter2") {
			t.Errorf("%s: %d %s, want %s", name, status, got, row.want)
		}
	}
	if err := w.credentials.Set(credential.Config{}); err != nil {
		t.Fatal(err)
	}
	if status, got := w.asked(c, w.request("GET", "https://good.example/", nil)); status != 403 ||
		!strings.Contains(got, string(proxy.CredentialRemoved)) {
		t.Errorf("after the credential was removed: %d %s", status, got)
	}
	c.CloseIdleConnections()
	if _, got := w.get(w.client(), "https://good.example/"); got != `GET / host=good.example tls=true body=""` {
		t.Errorf("on a new connection: %s", got)
	}
}

func TestAHostThatIsNotItselfGetsNoCredential(t *testing.T) {
	w := brokered(t)
	w.out.mu.Lock() // another server has its address
	for to := range w.out.servers {
		if to.Addr().String() == "203.0.114.1" && to.Port() == 443 {
			w.out.servers[to] = w.out.serve(t, tls.NewListener(listen(t), &tls.Config{
				Certificates: []tls.Certificate{w.out.issue(t, "evil.example")}}))
		}
	}
	w.out.mu.Unlock()
	if _, err := w.trusting().Get("https://good.example/"); err == nil {
		t.Error("the host was taken for itself")
	}
	w.await("that TLS failed", func(r audit.Record) bool {
		return r.Kind == audit.Closed && r.Verdict == audit.Failed && r.Reason == proxy.UpstreamTLSFailed
	})
}

func TestATunnelWithACredentialStreamsAndIsCut(t *testing.T) {
	w := brokered(t)
	res, err := w.trusting().Get("https://good.example/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	in := bufio.NewReader(res.Body)
	if line, err := in.ReadString('\n'); err != nil || line != "first\n" {
		t.Fatalf("%q, %v", line, err)
	}
	w.allow(sandbox.Egress{})
	if rest, err := io.ReadAll(in); err == nil {
		t.Errorf("the rest is %q", rest)
	}
	w.await("that it was cut", func(r audit.Record) bool { return r.Kind == audit.Closed && r.Reason == proxy.PolicyChanged })
}

func TestAWebSocketHasItsCredential(t *testing.T) {
	w := brokered(t)
	conn := tls.Client(w.tunnel("good.example:443"), &tls.Config{ServerName: "good.example", RootCAs: w.authority})
	if _, err := fmt.Fprintf(conn, "GET /upgrade HTTP/1.1\r\nHost: good.example\r\nConnection: Upgrade\r\n"+
		"Upgrade: websocket\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	if res, err := http.ReadResponse(in, nil); err != nil || res.StatusCode != 101 {
		t.Fatalf("%+v, %v", res, err)
	}
	if _, err := io.WriteString(conn, "ping\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := in.ReadString('\n'); err != nil || line != "ping\n" {
		t.Errorf("%q, %v", line, err)
	}
}

func TestConnectionsWithCredentialsAreBounded(t *testing.T) {
	w := brokered(t)
	var clients []*http.Client
	for range 2 {
		c := w.trusting()
		w.asked(c, w.request("GET", "https://good.example/", nil)) // the connection stays open
		clients = append(clients, c)
	}
	if _, err := w.trusting().Get("https://good.example/"); err == nil {
		t.Error("there is one connection too many")
	}
	w.refused(proxy.TooManyConnections)
	clients[0].CloseIdleConnections()
	eventually(t, "another may connect", func() bool {
		res, err := w.trusting().Get("https://good.example/")
		if err == nil {
			_ = res.Body.Close()
		}
		return err == nil
	})
}
