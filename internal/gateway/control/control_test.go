package control_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/control"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/credential"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/egress"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/llm"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/policy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/proxy"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gateway is one run of the gateway in a directory.
type gateway struct {
	*control.Client
	end func()
}

// nowhere is a DNS in which every name has a public address without a listener.
type nowhere struct{}

func (nowhere) LookupNetIP(_ context.Context, network, _ string) ([]netip.Addr, error) {
	if network == "ip6" {
		return nil, nil
	}
	return []netip.Addr{netip.MustParseAddr("203.0.114.1")}, nil
}

func start(t *testing.T, root string) *gateway {
	t.Helper()
	spool, err := audit.OpenSpool(control.AttemptsDir(root), nil)
	if err != nil {
		t.Fatal(err)
	}
	log := audit.New(spool, nil)
	dialer := &egress.Dialer{Resolver: nowhere{}, Connect: func(context.Context, netip.AddrPort) (net.Conn, error) {
		return nil, errors.New("nothing listens there")
	}}
	var n atomic.Int64
	newID := func() string { return strconv.FormatInt(n.Add(1), 10) }
	broker, err := llm.Open(llm.Options{Dir: control.CallsDir(root), Dialer: dialer, NewID: newID})
	if err != nil {
		t.Fatal(err)
	}
	p := proxy.New(proxy.Config{Dialer: dialer, Log: log, NewID: newID, LLM: broker})
	credentials, err := credential.Open(control.AuthorityDir(root))
	if err != nil {
		t.Fatal(err)
	}
	m, err := control.Open(root, p, dialer, spool, broker, credentials, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- m.Serve(ctx) }()
	g := &gateway{Client: control.NewClient(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(root, control.Dir, control.Socket))
	})}
	ended := false
	g.end = func() {
		if ended {
			return
		}
		ended = true
		g.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the control socket: %v", err)
		}
		p.Close()
		must(t, broker.Close())
		log.Close()
		must(t, spool.Close())
	}
	t.Cleanup(g.end)
	for { // until the socket exists
		if _, err = g.Status(t.Context()); err == nil {
			return g
		}
		select {
		case err := <-done:
			t.Fatalf("the control socket: %v", err)
		default:
		}
	}
}

func newRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gw") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ask requests a host over a sandbox's socket, and returns the reason for the failure.
func ask(t *testing.T, root, id string) string {
	t.Helper()
	conn, err := net.Dial("unix", filepath.Join(root, control.SandboxDir(id), control.ProxySocket))
	if err != nil {
		return "no socket"
	}
	defer conn.Close()
	_, err = io.WriteString(conn, "CONNECT github.com:443 HTTP/1.1\r\nHost: github.com:443\r\n\r\n")
	must(t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	return res.Header.Get(proxy.ReasonHeader)
}

const allowed = string(egress.ConnectFailed) // the outside of this test has no listener

func TestAGatewayRefusesUntilItHasSettings(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	g := start(t, root)
	must(t, g.Add(t.Context(), control.Sandbox{ID: "box-1", Agent: "did:plc:ann"}))
	if got := ask(t, root, "box-1"); got != string(policy.NoPolicy) {
		t.Errorf("before any settings: %s", got)
	}
	must(t, g.Apply(t.Context(), control.Settings{Egress: sandbox.DefaultEgress()}))
	if got := ask(t, root, "box-1"); got != allowed {
		t.Errorf("with settings: %s", got)
	}
	s, err := g.Status(t.Context())
	hash, _ := control.Settings{Egress: sandbox.DefaultEgress()}.Hash()
	if err != nil || !s.HasPolicy || s.Settings != hash || !slices.Equal(s.IDs, []string{"box-1"}) {
		t.Errorf("the status is %+v, %v", s, err)
	}
}

func TestAGatewayThatStartsAgainContinues(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	g := start(t, root)
	must(t, g.Apply(t.Context(), control.Settings{Egress: sandbox.DefaultEgress()}))
	for _, id := range []string{"box-1", "box-2", "box-3"} {
		must(t, g.Add(t.Context(), control.Sandbox{ID: id}))
	}
	must(t, g.Remove(t.Context(), "box-2"))
	g.end()
	if got := ask(t, root, "box-1"); got != "no socket" {
		t.Errorf("a gateway that has ended answers %s", got)
	}
	// The file is truncated.
	must(t, os.WriteFile(filepath.Join(root, control.Dir, "sandboxes", "box-3.json"), []byte("{"), 0o600))
	g = start(t, root)
	for id, want := range map[string]string{"box-1": allowed, "box-2": "no socket", "box-3": "no socket"} {
		if got := ask(t, root, id); got != want {
			t.Errorf("%s after the start: %s, want %s", id, got, want)
		}
	}
	g.end()
	must(t, os.WriteFile(filepath.Join(root, control.Dir, "settings.json"), []byte("{"), 0o600))
	start(t, root)
	if got := ask(t, root, "box-1"); got != string(policy.NoPolicy) {
		t.Errorf("with settings that cannot be read: %s", got)
	}
}

func TestWhatIsNotValidChangesNothing(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	g := start(t, root)
	must(t, g.Apply(t.Context(), control.Settings{Egress: sandbox.DefaultEgress()}))
	before, err := g.Status(t.Context())
	must(t, err)
	for name, err := range map[string]error{
		"a rule": g.Apply(t.Context(),
			control.Settings{Egress: sandbox.Egress{Allow: []sandbox.EgressRule{{Host: "*"}}}}),
		"an upstream":        g.Apply(t.Context(), control.Settings{Upstream: &control.Upstream{URL: "socks5://x"}}),
		"an id":              g.Add(t.Context(), control.Sandbox{ID: "../box"}),
		"an id to remove":    g.Remove(t.Context(), ".."),
		"an id in a variant": g.Remove(t.Context(), "a/../../b"),
		"an agent":           g.Add(t.Context(), control.Sandbox{ID: "box-1", Agent: strings.Repeat("x", 600)}),
		"a lease":            g.Add(t.Context(), control.Sandbox{ID: "box-1", Lease: strings.Repeat("x", 2000)}),
	} {
		if err == nil {
			t.Errorf("%s that is not valid was taken", name)
		}
	}
	after, err := g.Status(t.Context())
	if err != nil || after.Settings != before.Settings || len(after.IDs) > 0 {
		t.Errorf("it was %+v and is %+v, %v", before, after, err)
	}
}

func TestTellingTwiceIsTellingOnce(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	g := start(t, root)
	for range 2 {
		must(t, g.Apply(t.Context(), control.Settings{Egress: sandbox.DefaultEgress()}))
		must(t, g.Add(t.Context(), control.Sandbox{ID: "box-1"}))
	}
	must(t, g.Add(t.Context(), control.Sandbox{ID: "box-1", Agent: "did:plc:ann"})) // from a pool
	if got := ask(t, root, "box-1"); got != allowed {
		t.Errorf("it says %s", got)
	}
	for range 2 {
		must(t, g.Remove(t.Context(), "box-1"))
	}
	if left, err := filepath.Glob(filepath.Join(root, "*", "*box-1*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestOnlyASandboxsOwnDirectoryIsOpenToIt(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	g := start(t, root)
	must(t, g.Add(t.Context(), control.Sandbox{ID: "box-1"}))
	for path, want := range map[string]os.FileMode{
		control.Dir:                 0o700,
		control.SandboxDir("box-1"): 0o755,
		control.SandboxDir("box-1") + "/" + control.ProxySocket: 0o666,
	} {
		info, err := os.Stat(filepath.Join(root, path))
		must(t, err)
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", path, got, want)
		}
	}
}

func TestAReaderThatComesLaterGetsTheAttempts(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	g := start(t, root)
	must(t, g.Add(t.Context(), control.Sandbox{ID: "box-1", Agent: "did:plc:ann"}))
	ask(t, root, "box-1")
	g.end() // it flushes the log
	g = start(t, root)
	entries, err := g.Attempts(t.Context(), audit.Position{})
	must(t, err)
	var r audit.Record
	if len(entries) == 1 {
		must(t, json.Unmarshal(entries[0].Record, &r))
	}
	if r.Sandbox != "box-1" || r.Agent != "did:plc:ann" || r.Host != "github.com" || r.Verdict != audit.Refused ||
		entries[0].Line != 1 {
		t.Fatalf("it tells of %+v", entries)
	}
	if more, err := g.Attempts(t.Context(), entries[0].Position); err != nil || len(more) > 0 {
		t.Errorf("and then of %+v, %v", more, err)
	}
}

// TestASandboxThatTrustsTheGatewayHasItsAuthority, even after the gateway's next start. The credentials are in no file.
func TestASandboxThatTrustsTheGatewayHasItsAuthority(t *testing.T) {
	root := t.TempDir()
	g := start(t, root)
	for _, s := range []control.Sandbox{{ID: "box-1", Trusts: true}, {ID: "box-2"}} {
		if err := g.Add(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	config := credential.Config{Credentials: map[string]credential.Credential{
		"github.com": {Header: "Authorization", Value: "Bearer hunter2"}}}
	if err := g.SetCredentials(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if s, err := g.Status(t.Context()); err != nil || !slices.Equal(s.Credentials, []string{"github.com"}) {
		t.Errorf("%+v, %v", s, err)
	}
	config.Credentials["github.com"] = credential.Credential{Header: "A B", Value: "hunter2"}
	if err := g.SetCredentials(t.Context(), config); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a wrong header: %v", err)
	}
	file := func(id string) string { return filepath.Join(root, control.SandboxDir(id), credential.BundleFile) }
	before, err := os.ReadFile(file("box-1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file("box-2")); err == nil {
		t.Error("a sandbox without credentials has the authority")
	}
	g.end()
	g = start(t, root)
	if after, err := os.ReadFile(file("box-1")); err != nil || !bytes.Equal(before, after) {
		t.Errorf("after its next start: %v", err)
	}
	if s, err := g.Status(t.Context()); err != nil || len(s.Credentials) > 0 {
		t.Errorf("%+v, %v", s, err)
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte("hunter2")) {
			t.Errorf("%s has the credential", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
