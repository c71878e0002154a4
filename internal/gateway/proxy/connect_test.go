package proxy_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/egress"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/policy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/proxy"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestAnAllowedHostIsReachedThroughTLSEndToEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, proxy.Limits{})
	client := w.client()
	for _, address := range []string{
		"https://good.example/a?b=c;d", "https://sub.good.example/", "https://odd.example:8443/",
	} {
		if status, body := w.get(client, address); status != http.StatusOK || !strings.Contains(body, "tls=true") {
			t.Errorf("%s: %d %s", address, status, body)
		}
	}
	client.CloseIdleConnections()
	r := w.closed(audit.TLS)
	if r.Sandbox != "box-1" || r.Agent != "did:plc:ann" || r.Port == 0 || r.Address == "" || r.Sent < 200 ||
		r.Received < 200 || r.Duration <= 0 {
		t.Errorf("the log says %+v", r)
	}
	opened := w.await("that it opened",
		func(o audit.Record) bool { return o.Kind == audit.Opened && o.Attempt == r.Attempt })
	if opened.Verdict != audit.Allowed || opened.Host != r.Host || opened.Address != r.Address {
		t.Errorf("the log says %+v and then %+v", opened, r)
	}
}

func TestOtherSpellingsOfAnAllowedNameAreThatName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, proxy.Limits{})
	for _, target := range []string{"GOOD.Example:443", "good.example.:443"} {
		conn := tls.Client(w.tunnel(target), &tls.Config{ServerName: "good.example", RootCAs: w.out.roots})
		if err := conn.Handshake(); err != nil {
			t.Errorf("%s: %v", target, err)
		}
	}
}

func TestWhatThePolicyDoesNotAllowIsRefusedAndLogged(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]policy.Reason{
		"evil.example:443":                policy.HostNotAllowed,
		"evilgood.example:443":            policy.HostNotAllowed,
		"good.example.evil.example:443":   policy.HostNotAllowed,
		"example:443":                     policy.HostNotAllowed,
		"good.example:22":                 policy.PortNotAllowed,
		"good.example:8443":               policy.PortNotAllowed,
		"odd.example:443":                 policy.PortNotAllowed,
		"good.example":                    policy.InvalidHost,
		"good.example:":                   policy.InvalidHost,
		"good.example:0":                  policy.InvalidHost,
		"good.example:+443":               policy.InvalidHost,
		"good.example:65979":              policy.InvalidHost,
		"203.0.114.1:443":                 policy.InvalidHost,
		"169.254.169.254:80":              policy.InvalidHost,
		"127.0.0.1:443":                   policy.InvalidHost,
		"127.1:443":                       policy.InvalidHost,
		"2130706433:443":                  policy.InvalidHost,
		"0x7f000001:443":                  policy.InvalidHost,
		"0:443":                           policy.InvalidHost,
		"[::1]:443":                       policy.InvalidHost,
		"[::ffff:169.254.169.254]:80":     policy.InvalidHost,
		"[64:ff9b::a9fe:a9fe]:80":         policy.InvalidHost,
		"good.example:443:443":            policy.InvalidHost,
		"user@good.example:443":           policy.InvalidHost,
		"good.example%00.evil.example:80": policy.InvalidHost,
		"private.good.example:443":        policy.AddressRefused,
		"metadata.good.example:443":       policy.AddressRefused,
		"loop.good.example:443":           policy.AddressRefused,
		"mapped.good.example:443":         policy.AddressRefused,
		"nat64.good.example:443":          policy.AddressRefused,
	} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, proxy.Limits{})
			conn, _, status, reason := w.connect(target)
			if status != http.StatusForbidden && status != http.StatusBadRequest || reason != string(want) && reason != "" {
				t.Errorf("status %d (%s), want a refusal: %s", status, reason, want)
			}
			_ = conn.Close()
			w.await("that it is refused", func(r audit.Record) bool {
				return r.Verdict == audit.Refused &&
					(r.Reason == want || status == http.StatusBadRequest && r.Reason == proxy.InvalidRequest)
			})
			if reached := w.out.reached(); len(reached) > 0 {
				t.Errorf("%v was connected to", reached)
			}
		})
	}
}

func TestBytesThatAreNoHostAreRefusedAndLogged(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]string{
		"a NUL byte": "CONNECT good.example\x00.evil.example:443 HTTP/1.1\r\nHost: x\r\n\r\n",
		"a space":    "CONNECT good.example evil.example:443 HTTP/1.1\r\nHost: x\r\n\r\n",
		"no HTTP":    "\x05\x01\x00",
		"two Hosts":  "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nHost: evil.example\r\n\r\n",
		"two lengths": "POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nContent-Length: 1\r\n" +
			"Content-Length: 2\r\n\r\nab",
		"an odd encoding": "POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\n" +
			"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"a folded header":         "GET http://good.example/ HTTP/1.1\r\n Host: evil.example\r\n\r\n",
		"the preface of HTTP/2":   "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"not for a proxy":         "GET / HTTP/1.1\r\nHost: good.example\r\n\r\n",
		"another scheme":          "GET ftp://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
		"https without a CONNECT": "GET https://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, proxy.Limits{})
			conn := w.dial()
			if _, err := io.WriteString(conn, request); err != nil {
				t.Fatal(err)
			}
			if err := conn.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil && res.StatusCode < 400 {
				t.Errorf("status %d", res.StatusCode)
			}
			_ = conn.Close()
			w.await("that it is refused", func(r audit.Record) bool { return r.Verdict == audit.Refused })
			if reached := w.out.reached(); len(reached) > 0 {
				t.Errorf("%v was connected to", reached)
			}
		})
	}
}

func TestANamedPrivateRangeIsReached(t *testing.T) {
	t.Parallel()
	w := newWorld(t, proxy.Limits{})
	if status, body := w.get(w.client(), "https://model.good.example/"); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
	if reached := w.out.reached(); !slices.Equal(reached, []string{"10.1.0.1:443"}) {
		t.Errorf("connected to %v", reached)
	}
}

func TestAHostThatIsDownIsAFailureAndNoRefusal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, proxy.Limits{})
	for target, want := range map[string]policy.Reason{
		"down.good.example:443": egress.ConnectFailed, "nowhere.good.example:443": egress.ResolveFailed,
	} {
		if _, _, status, reason := w.connect(target); status != http.StatusBadGateway || reason != string(want) {
			t.Errorf("%s: status %d (%s)", target, status, reason)
		}
		w.await("that it failed", func(r audit.Record) bool { return r.Verdict == audit.Failed && r.Reason == want })
	}
}

func TestATunnelIsForTheNameThatItsHelloNames(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		target string
		hello  []byte
		want   policy.Reason
	}{
		"another name":         {"good.example:443", helloFor(t, "evil.example"), proxy.OtherName},
		"another allowed name": {"good.example:443", helloFor(t, "sub.good.example"), proxy.OtherName},
		"a longer name":        {"good.example:443", helloFor(t, "good.example.evil.example"), proxy.OtherName},
		"no name":              {"good.example:443", helloFor(t, ""), proxy.NoServerName},
		"an encrypted hello": {"good.example:443", addExtension(helloFor(t, "good.example"), 0xfe0d, make([]byte, 64)),
			proxy.EncryptedHello},
		"two names": {"good.example:443",
			addExtension(helloFor(t, "good.example"), 0, serverName("evil.example")), proxy.NotTLS},
		"a hello without an end":  {"good.example:443", endless(), proxy.NotTLS},
		"plain HTTP on 443":       {"good.example:443", []byte("GET / HTTP/1.1\r\nHost: good.example\r\n\r\n"), proxy.NotTLS},
		"SSH on 443":              {"good.example:443", []byte("SSH-2.0-OpenSSH_9.6\r\n"), proxy.NotTLS},
		"half a hello":            {"good.example:443", helloFor(t, "good.example")[:40], proxy.NoRequest},
		"nothing":                 {"good.example:443", nil, proxy.NoRequest},
		"nothing on 80":           {"good.example:80", nil, proxy.NoRequest},
		"another name on 8443":    {"odd.example:8443", helloFor(t, "evil.example"), proxy.OtherName},
		"another name, TLS on 80": {"good.example:80", helloFor(t, "evil.example"), proxy.OtherName},
		"SSH on 8080":             {"odd.example:8080", []byte("SSH-2.0-OpenSSH_9.6\r\n\r\n"), proxy.InvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, proxy.Limits{})
			conn := w.tunnel(row.target)
			if _, err := conn.Write(row.hello); err != nil {
				t.Fatal(err)
			}
			if err := conn.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			came := string(gone(t, conn))
			if strings.Contains(came, "host=") || len(came) > 200 {
				t.Errorf("the other side says %q", came)
			}
			w.refused(row.want)
		})
	}
}

func TestAHelloMayComeInPieces(t *testing.T) {
	t.Parallel()
	w := newWorld(t, proxy.Limits{})
	for name, hello := range map[string][]byte{
		"byte by byte": helloFor(t, "good.example"), "in records of 7 bytes": refragment(helloFor(t, "good.example"), 7),
	} {
		conn := w.tunnel("good.example:443")
		for i := range hello {
			if _, err := conn.Write(hello[i : i+1]); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		first := make([]byte, 1)
		if _, err := io.ReadFull(conn, first); err != nil || first[0] != 0x16 {
			t.Errorf("%s: the server answers %x, %v", name, first, err)
		}
	}
}

func TestANewPolicyCutsWhatItForbidsAndNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, proxy.Limits{})
	open := func(host string) *tls.Conn {
		conn := tls.Client(w.tunnel(host+":443"), &tls.Config{ServerName: host, RootCAs: w.out.roots})
		if err := conn.Handshake(); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	ask := func(conn *tls.Conn, host string) error {
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n"); err != nil {
			return err
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
		}
		return err
	}
	stays, private, goes, early := open("good.example"), open("model.good.example"), open("sub.good.example"),
		w.tunnel("sub.good.example:443")
	w.allow(sandbox.Egress{Allow: []sandbox.EgressRule{{Host: "good.example"}, {Host: "model.good.example"}}})
	ends := func(what string, conn io.Reader) { // the cut follows a moment after SetPolicy
		if _, err := io.ReadAll(conn); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("a tunnel %s is still there", what)
		}
	}
	ends("whose host is not allowed any more", goes)
	ends("whose range is not named any more", private)
	ends("that waited for its hello", early)
	if err := ask(stays, "good.example"); err != nil {
		t.Errorf("a tunnel that is still allowed was cut: %v", err)
	}
	r := w.await("that it was cut", func(r audit.Record) bool {
		return r.Kind == audit.Closed && r.Reason == proxy.PolicyChanged && r.Protocol == audit.TLS &&
			r.Host == "sub.good.example"
	})
	if r.Sent == 0 || r.Received == 0 || r.Verdict != audit.Allowed {
		t.Errorf("the log says %+v", r)
	}
	w.proxy.SetPolicy(nil)
	ends("without a policy", stays)
	if _, _, status, reason := w.connect("good.example:443"); status != http.StatusForbidden ||
		reason != string(policy.NoPolicy) {
		t.Errorf("without a policy: %d (%s)", status, reason)
	}
}

func TestAPolicyThatChangesWhileAHostIsConnectedToCounts(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]sandbox.Egress{
		"the host":  {Allow: []sandbox.EgressRule{{Host: "other.example"}}, PrivateCIDRs: []string{"10.1.0.0/16"}},
		"the range": {Allow: []sandbox.EgressRule{{Host: "model.good.example"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, proxy.Limits{})
			w.out.meanwhile = func() { w.allow(next) }
			if _, _, status, _ := w.connect("model.good.example:443"); status != http.StatusForbidden {
				t.Errorf("status %d", status)
			}
		})
	}
}

func TestASandboxThatIsRemovedIsCutOffAndOthersAreNot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, proxy.Limits{})
	idle, tunnel := w.dial(), w.tunnel("good.example:443")
	first := w.path
	w.path = w.add("box-2", "did:plc:bob", false)
	other := w.tunnel("good.example:443")
	w.proxy.Remove("box-1")
	for _, conn := range []io.Reader{idle, tunnel} {
		if b, err := io.ReadAll(conn); len(b) > 0 || err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("a connection of the sandbox is still there: %q, %v", b, err)
		}
	}
	w.path = first
	if err := tls.Client(other, &tls.Config{ServerName: "good.example", RootCAs: w.out.roots}).Handshake(); err != nil {
		t.Errorf("the other sandbox: %v", err)
	}
	w.proxy.Remove("box-1") // again
	if s := w.proxy.Status(); s.Sandboxes != 1 || s.Connections != 1 || s.Flows != 1 {
		t.Errorf("what is left: %+v", s)
	}
}

func TestASandboxHasSoManyConnectionsAndNoMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, proxy.Limits{Connections: 3, ConnectionsTotal: 4})
	kept := []io.Closer{w.tunnel("good.example:443"), w.tunnel("good.example:443"), w.tunnel("good.example:443")}
	if b := gone(t, w.dial()); len(b) > 0 {
		t.Errorf("the fourth connection is told %q", b)
	}
	w.refused(proxy.TooManyConnections)
	w.path = w.add("box-2", "", false)
	kept = append(kept, w.tunnel("good.example:443"))
	if b := gone(t, w.dial()); len(b) > 0 {
		t.Errorf("the fifth of all is told %q", b)
	}
	for _, c := range kept {
		_ = c.Close()
	}
	eventually(t, "the connections are given back", func() bool { return w.proxy.Status().Connections == 0 })
	w.tunnel("good.example:443")
}

func TestSlowConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(w *world) io.Reader{
		"that say nothing": func(w *world) io.Reader { return w.dial() },
		"with half a header": func(w *world) io.Reader {
			conn := w.dial()
			_, _ = io.WriteString(conn, "CONNECT good.example:443 HTTP/1.1\r\nX: ")
			return conn
		},
		"with half a hello": func(w *world) io.Reader {
			conn := w.tunnel("good.example:443")
			_, _ = conn.Write(helloFor(w.t, "good.example")[:40])
			return conn
		},
		"without a hello": func(w *world) io.Reader { return w.tunnel("good.example:443") },
		"with half a body": func(w *world) io.Reader {
			conn := w.dial()
			_, _ = io.WriteString(conn,
				"POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nContent-Length: 100\r\n\r\nhalf")
			return conn
		},
		"in a tunnel where nothing moves": func(w *world) io.Reader {
			conn := tls.Client(w.tunnel("good.example:443"), &tls.Config{ServerName: "good.example", RootCAs: w.out.roots})
			_ = conn.Handshake()
			return conn
		},
		"in a stream where nothing moves": func(w *world) io.Reader {
			conn := w.dial()
			_, _ = io.WriteString(conn, "GET http://good.example/stream HTTP/1.1\r\nHost: good.example\r\n\r\n")
			return conn
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t,
				proxy.Limits{HeaderTime: time.Second, Idle: 2 * time.Second, KeepAlive: time.Second})
			conn := begin(w)
			if _, err := io.ReadAll(conn); err != nil && strings.Contains(err.Error(), "i/o timeout") {
				t.Error("the connection is still there")
			}
			eventually(t, "nothing is left", func() bool { s := w.proxy.Status(); return s.Connections == 0 && s.Flows == 0 })
		})
	}
}

func TestALargeHeaderIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, proxy.Limits{Header: 4 << 10})
	conn := w.dial()
	// The proxy may break the request off.
	_, _ = io.WriteString(conn,
		"GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nX: "+strings.Repeat("x", 64<<10)+"\r\n\r\n")
	if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil &&
		res.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d", res.StatusCode)
	}
	w.refused(proxy.InvalidRequest)
}

func TestATunnelMovesSoManyBytesAndNoMore(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	w := newWorld(t, proxy.Limits{Bytes: limit})
	conn := tls.Client(w.tunnel("good.example:443"), &tls.Config{ServerName: "good.example", RootCAs: w.out.roots})
	body := strings.Repeat("x", 1<<20)
	// The proxy breaks the request off.
	_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: 1048576\r\n\r\n"+body)
	r := w.await("that it was cut off", func(r audit.Record) bool { return r.Reason == proxy.ByteLimit })
	if r.Sent+r.Received < limit || r.Sent+r.Received > 3*limit {
		t.Errorf("the log says %+v", r)
	}
}
