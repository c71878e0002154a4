package proxy_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/llm"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/policy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/proxy"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestPlainRequestsAreRewrittenForTheirHost(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ request, want string }{
		"as it came": {"GET http://good.example/a%2Fb?q=1;2&%zz HTTP/1.1\r\nHost: good.example\r\n\r\n",
			`GET /a%2Fb?q=1;2&%zz host=good.example tls=false body=""`},
		"a Host that lies": {"GET http://good.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
			`GET / host=good.example tls=false body=""`},
		"another port": {"GET http://odd.example:8080/ HTTP/1.1\r\nHost: odd.example\r\n\r\n",
			`GET / host=odd.example:8080 tls=false body=""`},
		"a user in the name": {"GET http://evil.example@good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
			`GET / host=good.example tls=false body=""`},
		"hop-by-hop headers": {
			"GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nProxy-Authorization: Basic x\r\n" +
				"Proxy-Connection: keep-alive\r\nConnection: Via\r\nVia: 1.1 x\r\nX-Forwarded-For: 1.1.1.1\r\n\r\n",
			`GET / host=good.example tls=false body=""`,
		},
		// If there is both a length and chunks, the chunks count, in the gateway and at the host alike.
		"smuggling": {
			"POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nContent-Length: 4\r\n" +
				"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
			`POST / host=good.example tls=false body="abc"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, proxy.Limits{})
			conn := w.dial()
			if _, err := io.WriteString(conn, row.request); err != nil {
				t.Fatal(err)
			}
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(res.Body); string(body) != row.want || err != nil {
				t.Errorf("the host was asked for %s, %v; want %s", body, err, row.want)
			}
		})
	}
}

func TestEachRequestOfAConnectionIsChecked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, proxy.Limits{})
	conn := w.dial()
	in := bufio.NewReader(conn)
	for i, row := range []struct {
		host   string
		status int
		reason policy.Reason
	}{
		{"good.example", 200, ""},
		{"evil.example", 403, policy.HostNotAllowed},
		{"private.good.example", 403, policy.AddressRefused},
		{"169.254.169.254", 403, policy.InvalidHost},
		{"sub.good.example", 200, ""},
	} {
		if _, err := io.WriteString(conn,
			"GET http://"+row.host+"/"+strconv.Itoa(i)+" HTTP/1.1\r\nHost: good.example\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if res.StatusCode != row.status || res.Header.Get(proxy.ReasonHeader) != string(row.reason) || err != nil {
			t.Errorf("%s: %d %s, %v", row.host, res.StatusCode, body, err)
		}
	}
	r := w.closed(audit.HTTP)
	if r.Host != "good.example" || r.Port != 80 || r.Address != "203.0.114.1" || r.Sent < 50 || r.Received < 50 {
		t.Errorf("the log says %+v", r)
	}
	for _, record := range w.text.records(t) {
		if strings.Contains(record.Host+record.Detail, "/1") {
			t.Errorf("the log has what was asked for: %+v", record)
		}
	}
}

func TestEachRequestInATunnelMustBeForItsHost(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		request string
		status  int
	}{
		"its host":               {"GET / HTTP/1.1\r\nHost: good.example\r\n\r\n", 200},
		"its host and port":      {"GET / HTTP/1.1\r\nHost: good.example:80\r\n\r\n", 200},
		"in an absolute address": {"GET http://good.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", 200},
		"another host":           {"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403},
		"another allowed host":   {"GET / HTTP/1.1\r\nHost: sub.good.example\r\n\r\n", 403},
		"another port":           {"GET / HTTP/1.1\r\nHost: good.example:443\r\n\r\n", 403},
		"another absolute":       {"GET http://evil.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n", 403},
		"https":                  {"GET https://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n", 403},
		"an opaque address":      {"GET http:http://evil.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n", 403},
		"trace":                  {"TRACE / HTTP/1.1\r\nHost: good.example\r\n\r\n", 403},
		"a tunnel in the tunnel": {"CONNECT good.example:443 HTTP/1.1\r\nHost: good.example\r\n\r\n", 403},
		"no host":                {"GET / HTTP/1.0\r\n\r\n", 403},
		"an upgrade to HTTP/2": {"GET / HTTP/1.1\r\nHost: good.example\r\nConnection: Upgrade, HTTP2-Settings\r\n" +
			"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n", 403},
		"an upgrade to something": {
			"GET / HTTP/1.1\r\nHost: good.example\r\nConnection: Upgrade\r\nUpgrade: websocket, tcp\r\n\r\n", 403,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, proxy.Limits{})
			conn := w.tunnel("good.example:80")
			in := bufio.NewReader(conn)
			good := "GET /good HTTP/1.1\r\nHost: good.example\r\n\r\n"
			for i, request := range []string{good, row.request, good} {
				if _, err := io.WriteString(conn, request); err != nil {
					t.Fatal(err)
				}
				res, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatalf("request %d: %v", i, err)
				}
				if _, err := io.Copy(io.Discard, res.Body); err != nil {
					t.Fatal(err)
				}
				if want := []int{200, row.status, 200}[i]; res.StatusCode != want {
					t.Errorf("request %d: %d (%s), want %d", i, res.StatusCode, res.Header.Get(proxy.ReasonHeader), want)
				}
				if res.Close {
					break
				}
			}
			if row.status != http.StatusOK {
				w.await("that it is refused", func(r audit.Record) bool { return r.Verdict == audit.Refused })
			}
			for _, to := range w.out.reached() {
				if to != "203.0.114.1:80" {
					t.Errorf("%s was connected to", to)
				}
			}
		})
	}
}

func TestARedirectIsAnAnswerLikeAnyOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, proxy.Limits{})
	res, err := w.client().Get("http://good.example/redirect")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if status, body := w.get(w.client(), res.Header.Get("Location")); res.StatusCode != http.StatusFound ||
		status != http.StatusForbidden {
		t.Errorf("a redirect (%d) to a private host is followed: %d %s", res.StatusCode, status, body)
	}
}

func TestAWebSocketIsATunnelToItsHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, proxy.Limits{})
	conn := w.tunnel("good.example:80")
	if _, err := io.WriteString(conn,
		"GET /upgrade HTTP/1.1\r\nHost: good.example\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("the answer is %+v, %v", res, err)
	}
	if _, err := io.WriteString(conn, "ping\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := in.ReadString('\n'); line != "ping\n" || err != nil {
		t.Errorf("the echo is %q, %v", line, err)
	}
	w.allow(sandbox.Egress{})
	if rest := gone(t, conn); len(rest) > 0 {
		t.Errorf("after the policy forbids it, %q comes", rest)
	}
}

func TestAnAnswerArrivesAsItIsWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, proxy.Limits{})
	res, err := w.client().Get("http://good.example/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if line, err := bufio.NewReader(res.Body).ReadString('\n'); line != "first\n" || err != nil {
		t.Errorf("the first piece is %q, %v", line, err)
	}
	w.await("that it is under way",
		func(r audit.Record) bool { return r.Kind == audit.Opened && r.Protocol == audit.HTTP })
	w.allow(sandbox.Egress{})
	if rest, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("after the policy forbids it, the answer ends well with %q", rest)
	}
	w.await("that it was cut",
		func(r audit.Record) bool { return r.Kind == audit.Closed && r.Reason == proxy.PolicyChanged })
}

func TestALargeBodyGetsThrough(t *testing.T) {
	t.Parallel()
	w := newWorld(t, proxy.Limits{})
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for _, scheme := range []string{"http", "https"} {
		res, err := w.client().Post(scheme+"://good.example/", "application/octet-stream", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || !bytes.Contains(text, body) {
			t.Errorf("%s: of %d bytes %d came back, %v", scheme, len(body), len(text), err)
		}
	}
}

func TestAnAgentIsNamedOnceItIsKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, proxy.Limits{})
	w.path = w.add("pooled", "", false)
	w.get(w.client(), "http://good.example/")
	bob := llm.Caller{Sandbox: "pooled", Agent: "did:plc:bob"}
	if !w.proxy.Assign(proxy.Sandbox{Caller: bob}) || w.proxy.Assign(proxy.Sandbox{Caller: llm.Caller{Sandbox: "nobody", Agent: "did:plc:bob"}}) {
		t.Error("assigning says the wrong thing")
	}
	w.get(w.client(), "http://good.example/")
	var agents []string
	w.await("both", func(audit.Record) bool {
		agents = nil
		for _, r := range w.text.records(t) {
			if r.Kind == audit.Closed {
				agents = append(agents, r.Agent)
			}
		}
		return len(agents) == 2
	})
	if slices.Sort(agents); agents[0] != "" || agents[1] != "did:plc:bob" { // a request ends after its answer
		t.Errorf("the log names %q", agents)
	}
}
