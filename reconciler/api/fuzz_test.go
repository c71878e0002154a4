package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/servicetest/inprocess"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// FuzzRequests sends every route ids, queries and bodies that no client would send. The answer must be a problem that
// names the mistake, and never an internal error.
func FuzzRequests(f *testing.F) {
	env, store := inprocess.NewStored(f)
	text := access.NewToken()
	token, err := access.MakeToken("test", text)
	if err != nil {
		f.Fatal(err)
	}
	handler, err := api.New(api.Config{
		Service:   env.Service,
		Connector: env.Service.(service.Connector),
		Access:    access.New(access.Config{Store: store}),
		Tokens:    []access.Token{token},
		Now:       env.Now,
	})
	if err != nil {
		f.Fatal(err)
	}
	if _, err := env.Service.PutEnvironment(f.Context(), sandbox.PutEnvironment{
		ID:              "catan-7",
		EnvironmentSpec: sandbox.EnvironmentSpec{Type: sandbox.TypeCatan, Image: "game:1"},
	}); err != nil {
		f.Fatal(err)
	}
	all := slices.Sorted(slices.Values(routes))
	queries := []string{
		"", "limit=-1", "after_id=9999999999999999999&lease_id=x", "environment_id=%00&status=open",
		"month=2026-13&agent_did=%ff", "offset=1&follow=yes", "path=/data/../x&mode=0999", "unknown=1",
		"force=maybe&generation=1e9",
	}
	bodies := []string{
		"", "{}", `{"agent_did":"did:plc:ann","environment_id":"catan-7"}`, `{"command":["true"],"timeout":"-1s"}`,
		`{"name":"x","scopes":["all"]}`, `{"image":"\u0000","ttl":1e99}`, `[1,{"a":`,
	}
	for i := range all {
		f.Add(uint(i), "did:plc:ann::catan-7", queries[i%len(queries)], bodies[i%len(bodies)], "application/json")
	}
	f.Add(uint(0), "a%2F..\x00", "a;b", "--x\r\n", "multipart/form-data; boundary=x")
	f.Fuzz(func(t *testing.T, route uint, id, query, body, contentType string) {
		method, pattern, _ := strings.Cut(all[route%uint(len(all))], " ")
		path := pattern
		for strings.Contains(path, "{") {
			before, rest, _ := strings.Cut(path, "{")
			_, after, _ := strings.Cut(rest, "}")
			path = before + url.PathEscape(id) + after
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // ends streams that follow
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, method, "http://reconciler.example"+path+"?"+query, strings.NewReader(body))
		if err != nil {
			return
		}
		r.RemoteAddr = "127.0.0.1:1"
		r.Header = http.Header{"Authorization": {"Bearer " + text}, "Content-Type": {contentType}}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, r)
		what := fmt.Sprintf("%s %s with %q as %q", method, r.URL, body, contentType)
		if answer.Code < 400 {
			return
		}
		var p wire.Problem
		if err := json.Unmarshal(answer.Body.Bytes(), &p); err != nil || p.Status != answer.Code || p.Code == "" ||
			p.RequestID == "" || answer.Header().Get("Content-Type") != wire.ProblemJSON {
			t.Fatalf("%s is answered with %d: %s", what, answer.Code, answer.Body)
		}
		if answer.Code == http.StatusInternalServerError || p.Code == sandbox.Internal ||
			answer.Code > 500 && ctx.Err() == nil {
			t.Errorf("%s is answered with %d: %s", what, answer.Code, answer.Body)
		}
	})
}

// asked is a service that reports the address of its caller.
type asked struct {
	service.Service
	from *string
}

func (a asked) GetEnvironment(ctx context.Context, _ string) (sandbox.Environment, error) {
	*a.from = sandbox.ActorOf(ctx).Address
	return sandbox.Environment{}, nil
}

// FuzzForwarded: for any header, the address is a valid one in canonical form. It is the last one from which a trusted
// proxy received the request, so no client can choose it.
func FuzzForwarded(f *testing.F) {
	text := access.NewToken()
	token, err := access.MakeToken("test", text)
	if err != nil {
		f.Fatal(err)
	}
	_, proxies, err := net.ParseCIDR("10.0.0.0/8")
	if err != nil {
		f.Fatal(err)
	}
	for _, header := range []string{
		"192.0.2.7", "1.2.3.4, 192.0.2.7,10.1.1.1", "::ffff:10.0.0.1, ::FFFF:192.0.2.7", "2001:DB8:0::1", "<b>", ",,",
		"10.0.0.1", "192.0.2.7:80", "[::1]", "fe80::1%eth0", "0192.0.2.7",
	} {
		f.Add("10.0.0.1:1", header, "")
		f.Add("192.0.2.1:1", "1.2.3.4", header)
	}
	var from string
	handler, err := api.New(api.Config{
		Service:        asked{from: &from},
		Tokens:         []access.Token{token},
		TrustedProxies: []net.IPNet{*proxies},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, peer, first, second string) {
		host, _, err := net.SplitHostPort(peer)
		if err != nil || net.ParseIP(host) == nil {
			return // no connection has this address
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/environments/catan-7", nil)
		r.RemoteAddr = peer
		r.Header = http.Header{"Authorization": {"Bearer " + text}, "X-Forwarded-For": {first, second}}
		handler.ServeHTTP(httptest.NewRecorder(), r)
		ip := net.ParseIP(from)
		if ip == nil || ip.String() != from {
			t.Fatalf("from %s with %q and %q, the address is %q", peer, first, second, from)
		}
		if !proxies.Contains(net.ParseIP(host)) && !ip.Equal(net.ParseIP(host)) {
			t.Errorf("%s is not a proxy, but the API takes its address for %s", peer, from)
		}
		hops := strings.Split(first+","+second, ",")
		for _, hop := range slices.Backward(hops) {
			claimed := net.ParseIP(strings.TrimSpace(hop))
			if claimed == nil || ip.Equal(claimed) {
				return
			}
			if !proxies.Contains(claimed) && proxies.Contains(net.ParseIP(host)) {
				t.Errorf("with %q and %q, the address is %s, not %s", first, second, from, claimed)
				return
			}
		}
	})
}
