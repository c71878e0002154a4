package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/credential"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/egress"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/llm"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/policy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/proxy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait; it is generous because test machines are busy.
const patience = 20 * time.Second

// world is a gateway, its outside, and one sandbox.
type world struct {
	t     testing.TB
	proxy *proxy.Proxy
	log   *audit.Log
	out   *outside
	// path is the sandbox's socket.
	path string
	text *lines
	// credentials is empty until a test sets some; authority is the one that sandboxes with credentials trust.
	credentials *credential.Broker
	authority   *x509.CertPool
}

// newWorld allows good.example and *.good.example. Tests can change the policy.
func newWorld(t testing.TB, limits proxy.Limits) *world {
	t.Helper()
	w := &world{t: t, out: newOutside(t), text: &lines{}, authority: x509.NewCertPool()}
	dir := t.TempDir()
	var err error
	if w.credentials, err = credential.Open(dir); err != nil {
		t.Fatal(err)
	}
	if err := w.credentials.Publish(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, credential.CertificateFile))
	if err != nil || !w.authority.AppendCertsFromPEM(text) {
		t.Fatal(err)
	}
	w.log = audit.New(w.text, nil)
	var n atomic.Int64
	w.proxy = proxy.New(proxy.Config{
		Dialer: &egress.Dialer{Resolver: w.out, Connect: w.out.connect}, Log: w.log, Limits: limits,
		NewID:       func() string { return "a" + strconv.FormatInt(n.Add(1), 10) },
		Credentials: w.credentials, Roots: w.out.roots,
	})
	t.Cleanup(func() { w.proxy.Close(); w.log.Close() })
	w.allow(sandbox.Egress{
		Allow: []sandbox.EgressRule{
			{Host: "good.example"}, {Host: "*.good.example"}, {Host: "odd.example", Ports: []int{8080, 8443}},
		},
		PrivateCIDRs: []string{"10.1.0.0/16"},
	})
	w.path = w.add("box-1", "did:plc:ann", false)
	return w
}

func (w *world) allow(e sandbox.Egress) {
	w.t.Helper()
	p, err := policy.Compile(e)
	if err != nil {
		w.t.Fatal(err)
	}
	w.proxy.SetPolicy(p)
}

// add serves a sandbox, and returns the path of its socket.
func (w *world) add(id, agent string, trusts bool) string {
	w.t.Helper()
	dir, err := os.MkdirTemp("", "gw") // the path of a socket must be short
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err == nil {
		err = w.proxy.Add(proxy.Sandbox{Caller: llm.Caller{Sandbox: id, Agent: agent}, Trusts: trusts}, l)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return path
}

// dial connects to the gateway as the sandbox does.
func (w *world) dial() *net.UnixConn {
	w.t.Helper()
	conn, err := net.Dial("unix", w.path)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.UnixConn)
}

// connect requests a tunnel. The status is 0 if the gateway does not answer.
func (w *world) connect(target string) (*net.UnixConn, *bufio.Reader, int, string) {
	w.t.Helper()
	conn := w.dial()
	if _, err := io.WriteString(conn, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\n\r\n"); err != nil {
		w.t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return conn, in, 0, ""
	}
	return conn, in, res.StatusCode, res.Header.Get(proxy.ReasonHeader)
}

// tunnel requests a tunnel, which must succeed.
func (w *world) tunnel(target string) *net.UnixConn {
	w.t.Helper()
	conn, in, status, reason := w.connect(target)
	if status != http.StatusOK || in.Buffered() > 0 {
		w.t.Fatalf("CONNECT %s: status %d (%s), %d bytes more", target, status, reason, in.Buffered())
	}
	return conn
}

// client is an HTTP client that goes through the gateway.
func (w *world) client() *http.Client {
	transport := &http.Transport{
		Proxy:           http.ProxyURL(&url.URL{Scheme: "http", Host: "gateway"}),
		DialContext:     func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", w.path) },
		TLSClientConfig: &tls.Config{RootCAs: w.out.roots},
	}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport:     transport,
		Timeout:       patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// get returns the status and the body.
func (w *world) get(client *http.Client, address string) (int, string) {
	w.t.Helper()
	return w.asked(client, w.request(http.MethodGet, address, nil))
}

// asked sends a request and returns the status and the body.
func (w *world) asked(c *http.Client, r *http.Request) (int, string) {
	w.t.Helper()
	res, err := c.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// await waits for a wanted record, and returns the first one.
func (w *world) await(what string, wanted func(audit.Record) bool) audit.Record {
	w.t.Helper()
	var list []audit.Record
	found := -1
	if !testwait.Poll(patience, func() bool {
		list = w.text.records(w.t)
		found = slices.IndexFunc(list, wanted)
		return found >= 0
	}) {
		w.t.Fatalf("the log does not say %s; it says %+v", what, list)
	}
	return list[found]
}

// refused waits for the record of a refusal.
func (w *world) refused(reason policy.Reason) {
	w.t.Helper()
	w.await("that something is refused: "+string(reason), func(r audit.Record) bool {
		return r.Kind == audit.Closed && r.Verdict == audit.Refused && r.Reason == reason
	})
}

// closed waits for the end of an allowed attempt.
func (w *world) closed(protocol audit.Protocol) audit.Record {
	w.t.Helper()
	return w.await("that something ended: "+string(protocol), func(r audit.Record) bool {
		return r.Kind == audit.Closed && r.Verdict == audit.Allowed && r.Protocol == protocol
	})
}

// gone reads until a connection ends, and returns the bytes.
func gone(t testing.TB, conn net.Conn) []byte {
	t.Helper()
	b, err := io.ReadAll(conn)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatalf("the connection is still there after %s", patience)
	}
	return b
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	testwait.Until(t, patience, what, ok)
}

// lines collects the log's text.
type lines struct {
	mu   sync.Mutex // guards what follows
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) records(t testing.TB) []audit.Record {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []audit.Record
	for line := range strings.Lines(l.text.String()) {
		var r audit.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

// outside is a test's Internet: its DNS, and servers at its addresses. Every server answers with the request.
type outside struct {
	roots *x509.CertPool

	mu      sync.Mutex // guards what follows
	names   map[string][]netip.Addr
	servers map[netip.AddrPort]string // the local address of each outside address
	dialled []netip.AddrPort
	// meanwhile is called during a connection attempt.
	meanwhile func()
}

func newOutside(t testing.TB) *outside {
	t.Helper()
	o := &outside{
		roots:   x509.NewCertPool(),
		names:   make(map[string][]netip.Addr),
		servers: make(map[netip.AddrPort]string),
	}
	certificate := o.issue(t, "good.example", "*.good.example", "evil.example", "odd.example")
	secure := o.serve(t, tls.NewListener(listen(t), &tls.Config{Certificates: []tls.Certificate{certificate}}))
	plain := o.serve(t, listen(t))
	for name, addr := range map[string]string{
		"good.example":          "203.0.114.1",
		"sub.good.example":      "203.0.114.2",
		"odd.example":           "203.0.114.3",
		"evil.example":          "203.0.114.66",
		"private.good.example":  "10.9.0.1",
		"model.good.example":    "10.1.0.1",
		"metadata.good.example": "169.254.169.254",
		"loop.good.example":     "127.0.0.1",
		"mapped.good.example":   "::ffff:10.9.0.1",
		"nat64.good.example":    "64:ff9b::a9fe:a9fe",
		"down.good.example":     "203.0.114.9",
	} {
		a := netip.MustParseAddr(addr)
		o.names[name] = []netip.Addr{a}
		if name == "down.good.example" {
			continue
		}
		for port, server := range map[uint16]string{443: secure, 8443: secure, 80: plain, 8080: plain} {
			o.servers[netip.AddrPortFrom(a, port)] = server
		}
	}
	return o
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serve serves echo on a listener and returns its address.
func (o *outside) serve(t testing.TB, l net.Listener) string {
	t.Helper()
	server := &http.Server{
		Handler:           http.HandlerFunc(echo),
		ReadHeaderTimeout: patience,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// echo answers with the request. /redirect redirects. /stream answers in two pieces, the second once the client
// continues. /upgrade echoes bytes.
func echo(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/redirect":
		http.Redirect(w, r, "http://private.good.example/", http.StatusFound)
	case "/stream":
		_, _ = io.WriteString(w, "first\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case "/upgrade":
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(conn, buffered)
	default:
		body, _ := io.ReadAll(r.Body)
		sum := fmt.Sprintf("%s %s host=%s tls=%t body=%q", r.Method, r.RequestURI, r.Host, r.TLS != nil, body)
		for _, h := range []string{"X-Forwarded-For", "Proxy-Authorization", "Proxy-Connection", "Transfer-Encoding", "Via", "Authorization", "Private-Token"} {
			if v := r.Header.Get(h); v != "" {
				sum += " " + h + "=" + v
			}
		}
		_, _ = io.WriteString(w, sum)
	}
}

func (o *outside) issue(t testing.TB, names ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		DNSNames:              names,
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	o.roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// LookupNetIP implements egress.Resolver.
func (o *outside) LookupNetIP(_ context.Context, network, host string) ([]netip.Addr, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []netip.Addr
	for _, a := range o.names[strings.TrimSuffix(host, ".")] {
		if a.Is4() == (network == "ip4") {
			list = append(list, a)
		}
	}
	if len(list) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return list, nil
}

func (o *outside) connect(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	o.mu.Lock()
	o.dialled = append(o.dialled, to)
	local, ok := o.servers[to]
	meanwhile := o.meanwhile
	o.mu.Unlock()
	if meanwhile != nil {
		meanwhile()
	}
	if !ok {
		return nil, errors.New("connection refused")
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", local)
}

// local returns the local address that stands for an outside address.
func (o *outside) local(address string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.servers[netip.MustParseAddrPort(address)]
}

// reached lists the outside addresses that were connected to.
func (o *outside) reached() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []string
	for _, to := range o.dialled {
		list = append(list, to.String())
	}
	return list
}
