package provider_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
)

// A provider reaches a reconciler behind a private authority, with its own certificate, and through a proxy. If a file
// is missing, the error names the attribute.
func TestAccAReconcilerIsReachedAsItsBlockSays(t *testing.T) {
	t.Parallel()
	w := providertest.New(t)
	r := w.Reconciler()
	target, err := url.Parse(r.URL)
	w.Must(err)
	var through atomic.Int64
	forward := httputil.NewSingleHostReverseProxy(target)
	front := httptest.NewUnstartedServer(forward)
	front.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes
	front.TLS = &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAnyClientCert}
	front.StartTLS()
	t.Cleanup(front.Close)
	proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		through.Add(1)
		forward.ServeHTTP(rw, req)
	}))
	t.Cleanup(proxy.Close)

	ca, certificate, key := pems(t, w, front)
	configuration := func(address string, more ...string) string {
		return fmt.Sprintf("provider \"sandbox\" {\n  reconciler = {\n    url = %q\n    token = %q\n    %s\n  }\n}\n",
			address, r.Token, strings.Join(more, "\n    "))
	}
	known := fmt.Sprintf("ca_file = %q", ca)
	own := fmt.Sprintf("client_certificate_file = %q\n    client_key_file = %q", certificate, key)
	tf := terraform(t, configuration(front.URL, known, own)+environment(w))
	tf.Run("apply", "-auto-approve", "-input=false")
	for name, c := range map[string]struct{ configuration, says string }{
		"no authority":   {configuration(front.URL, own), "as ca_file in the provider's"},
		"no certificate": {configuration(front.URL, known), "set client_certificate_file and client_key_file"},
		"no file":        {configuration(front.URL, `ca_file = "/nowhere/ca.pem"`), "Reading ca_file: open /nowhere/ca.pem"},
		"another file":   {configuration(front.URL, fmt.Sprintf("ca_file = %q", key)), "has no certificate in PEM form"},
		"a path": {
			configuration(r.URL + "/v1"),
			"reconciler " + r.URL + "/v1: unknown route GET /v1/v1/ledger; /openapi.json lists all routes: check the URL, " +
				"which must not end in /v1 or another path of the API",
		},
		"no proxy": {configuration(r.URL, `proxy_url = "proxy:3128"`), "http://proxy.example.com:3128"},
	} {
		tf.Write("main.tf", c.configuration+environment(w))
		if said := unwrapped(tf.Fail("plan", "-input=false", "-no-color")); !strings.Contains(said, c.says) {
			t.Errorf("%s: the plan does not say %q:\n%s", name, c.says, said)
		}
	}
	tf.Write("main.tf", configuration(r.URL, fmt.Sprintf("proxy_url = %q", proxy.URL))+environment(w))
	if p := tf.Plan(); len(p.Changes) != 0 || through.Load() == 0 {
		t.Errorf("through a proxy %v is planned, and the proxy saw %d requests", p.Changes, through.Load())
	}
	tf.Run("destroy", "-auto-approve", "-input=false")
}

// unwrapped returns the text in Terraform's boxes as one line.
func unwrapped(printed string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(printed, "│", "")), " ")
}

// pems writes a server's certificate and key, for use as the authority and as a client's.
func pems(t *testing.T, w *providertest.World, s *httptest.Server) (ca, certificate, key string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	w.Must(err)
	ca = w.WriteFile("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	key = w.WriteFile("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	return ca, ca, key
}
