package egress_test

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/egress"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/policy"
)

// corporate is an upstream proxy that answers every CONNECT, and then sends the request back.
func corporate(w http.ResponseWriter, r *http.Request) {
	if r.Host == "denied.example:443" {
		http.Error(w, "not here", http.StatusForbidden)
		return
	}
	if r.Method != http.MethodConnect {
		_, _ = io.WriteString(w, "proxied "+r.RequestURI+" "+r.Header.Get("Proxy-Authorization"))
		return
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
	b := make([]byte, 4)
	_, _ = io.ReadFull(conn, b)
	_, _ = io.WriteString(conn, r.RequestURI+" "+r.Header.Get("Proxy-Authorization")+" "+string(b))
}

func TestEverythingGoesThroughAnUpstreamProxy(t *testing.T) {
	t.Parallel()
	plain, secure := httptest.NewServer(http.HandlerFunc(corporate)), httptest.NewTLSServer(http.HandlerFunc(corporate))
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	for address, ca := range map[string][]byte{plain.URL: nil, secure.URL: authority} {
		up, err := egress.NewUpstream(strings.Replace(address, "://", "://ann:secret@", 1), ca)
		if err != nil {
			t.Fatal(err)
		}
		d := &egress.Dialer{Resolver: names(nil)} // it is never used
		d.SetUpstream(up)
		conn, addr, err := d.Dial(t.Context(), public(t), "github.com", 443)
		if err != nil || addr.IsValid() {
			t.Fatalf("%s: %s, %v", address, addr, err)
		}
		_, _ = io.WriteString(conn, "ping")
		if b, err := io.ReadAll(conn); string(b) != "github.com:443 Basic YW5uOnNlY3JldA== ping" || err != nil {
			t.Errorf("%s: the proxy was asked %q, %v", address, b, err)
		}
		_ = conn.Close()

		client := &http.Client{Transport: &http.Transport{
			Proxy: d.Proxy, DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				conn, _, err := d.DialHTTP(ctx, public(t), "github.com", 80)
				return conn, err
			},
		}}
		res, err := client.Get("http://github.com/x")
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if string(b) != "proxied http://github.com/x Basic YW5uOnNlY3JldA==" || err != nil {
			t.Errorf("%s: the proxy was asked %q, %v", address, b, err)
		}
	}
}

func TestAnUpstreamProxyThatRefusesIsNamed(t *testing.T) {
	t.Parallel()
	plain, secure := httptest.NewServer(http.HandlerFunc(corporate)),
		httptest.NewUnstartedServer(http.HandlerFunc(corporate))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	for name, row := range map[string]struct {
		address, host string
		want          policy.Reason
	}{
		"it refuses":            {plain.URL, "denied.example", egress.UpstreamRefused},
		"nobody vouches for it": {secure.URL, "github.com", egress.ConnectFailed},
		"it is no TLS server":   {strings.Replace(plain.URL, "http:", "https:", 1), "github.com", egress.ConnectFailed},
		"it is not there":       {"http://127.0.0.1:1", "github.com", egress.ConnectFailed},
	} {
		up, err := egress.NewUpstream(row.address, nil)
		if err != nil {
			t.Fatal(err)
		}
		d := &egress.Dialer{}
		d.SetUpstream(up)
		_, _, err = d.Dial(t.Context(), public(t), row.host, 443)
		var f *egress.Failure
		if !errors.As(err, &f) || f.Reason != row.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnAddressThatIsNoProxyIsRefusedWithoutItsPassword(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"", "proxy.example:3128", "socks5://ann:secret@proxy.example", "http://ann:secret@",
		"http://ann:secret@proxy.example/path", "http://ann:secret@pro xy",
	} {
		if _, err := egress.NewUpstream(address, nil); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", address, err)
		}
	}
	if _, err := egress.NewUpstream("https://proxy.example", []byte("no PEM")); err == nil {
		t.Error("an authority that is none is taken")
	}
}
