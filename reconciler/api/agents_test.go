package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const chat = annIn + "/agents/chat"

// agents creates catan-7 with ann's lease, in which the agent chat listens.
func (w *world) agents() sandbox.Lease {
	w.Helper()
	l := w.game()
	w.start(`{"name":"chat","command":["listen","8080","1ms"],"endpoint":{"port":8080,"description":"Talks."}}`)
	return l
}

func (w *world) start(process string) {
	w.Helper()
	want[sandbox.Process](w, w.do("POST", annIn+"/processes", process), 202)
}

func (w *world) listed(query string) []sandbox.Agent {
	w.Helper()
	return want[wire.AgentPage](w, w.do("GET", "/v1/agents"+query, ""), 200).Agents
}

func TestAgentsAreListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if got := w.listed(""); len(got) != 0 {
		t.Errorf("without any, the list is %+v", got)
	}
	l := w.agents()
	w.start(`{"name":"plain","command":["say","1h","no agent"]}`)
	w.start(`{"name":"short","command":["crash","1ms","3","no use"],"endpoint":{"port":81}}`)
	want[sandbox.ProcessWaited](w, w.do("POST", annIn+"/processes/short/wait", `{"exit":true}`), 200)
	got := w.listed("")
	if len(got) != 2 || got[0].Name != "chat" || got[1].Name != "short" {
		t.Fatalf("the list is %+v", got)
	}
	if a := got[0]; a.ID != l.ID+"/chat" || a.Description != "Talks." || a.LeaseID != l.ID || a.EnvironmentID != "catan-7" ||
		a.AgentDID != ann || a.Generation != 1 || a.Path != chat+"/" || a.Port != 8080 ||
		a.State != sandbox.AgentRunning || a.StartedAt.IsZero() || a.Error != "" {
		t.Errorf("it is %+v", a)
	}
	for query, n := range map[string]int{
		"?state=ended": 1, "?state=running": 1, "?state=asleep": 0, "?state=starting": 0, "?environment_id=catan-7": 2,
		"?environment_id=other": 0, "?lease_id=" + l.ID: 2, "?lease_id=did:plc:bob::catan-7": 0,
		"?after=" + l.ID + "/chat": 1, "?after=" + l.ID + "/short": 0, "?limit=1": 1,
	} {
		if got := w.listed(query); len(got) != n {
			t.Errorf("with %s, the list is %+v", query, got)
		}
	}
	page := want[wire.AgentPage](w, w.do("GET", "/v1/agents?limit=1", ""), 200)
	if page.NextAfter != l.ID+"/chat" {
		t.Errorf("the first page is %+v", page)
	}
	w.wantProblem(w.do("GET", "/v1/agents?state=tired", ""), 422, sandbox.Invalid, "state")

	want[sandbox.Lease](w, w.do("POST", annIn+"/sleep", ""), 200)
	if got := w.listed("?state=asleep"); len(got) != 1 || got[0].Name != "chat" || got[0].State != sandbox.AgentAsleep {
		t.Errorf("asleep, the list is %+v", got)
	}
	want[sandbox.Lease](w, w.do("POST", annIn+"/release", ""), 200)
	if got := w.listed(""); len(got) != 0 {
		t.Errorf("after the lease, the list is %+v", got)
	}
}

// askAgent sends a request to an agent, and returns the request that the agent received.
func (w *world) askAgent(method, path, body string, header ...string) (fake.Served, answer) {
	w.Helper()
	a := w.do(method, path, body, header...)
	return want[fake.Served](w, a, 200), a
}

func TestARequestIsPassedOnToAnAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents()
	got, a := w.askAgent("PATCH", chat+"/v1/a%2Fb/c?q=1&q=%2F", "hello", "Content-Type", "text/plain", "X-Own", "kept",
		"Cookie", "login=secret", "Referer", "https://reconciler.test/ui", "X-Forwarded-For", "192.0.2.1",
		"X-Sandbox-Lease", "forged", "X-Sandbox-Account", "forged", "X-Sandbox-Session", "game-7:turn-3")
	if got.Method != "PATCH" || got.Target != "/v1/a%2Fb/c?q=1&q=%2F" || got.Host != "127.0.0.1" || got.Body != "hello" {
		t.Errorf("the agent got %+v", got)
	}
	for name, value := range map[string]string{
		"X-Own": "kept", "Content-Type": "text/plain", "X-Sandbox-Lease": "did:plc:ann::catan-7",
		"X-Sandbox-Session": "game-7:turn-3", "X-Sandbox-Account": "", "Authorization": "", "Cookie": "", "Referer": "",
		"X-Forwarded-For": "",
	} {
		if is := got.Header.Get(name); is != value {
			t.Errorf("the agent got %s: %q, want %q", name, is, value)
		}
	}
	if strings.Contains(a.body, w.admin) {
		t.Error("the agent got the caller's token")
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Set-Cookie": "", "Content-Security-Policy": "sandbox; default-src 'none'",
		"X-Content-Type-Options": "nosniff",
	} {
		if is := a.Header.Get(name); is != value {
			t.Errorf("the caller got %s: %q, want %q", name, is, value)
		}
	}
	if got, _ := w.askAgent("GET", chat+"/", ""); got.Target != "/" || got.Header.Get("X-Sandbox-Session") != "" {
		t.Errorf("the agent got %+v", got)
	}
	w.wantProblem(w.do("GET", chat+"/", "", "X-Sandbox-Session", "not one"), 422, sandbox.Invalid, "X-Sandbox-Session")
}

// The headers of an informational response would reach the caller unfiltered, and remove those that the API has set.
func TestAnAgentsInformationalResponsesAreDropped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents()
	for _, early := range []string{"102", "103", "199"} {
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				t.Errorf("before the answer, %d arrives with %v", code, h)
				return nil
			},
		})
		resp := w.open(ctx, "GET", chat+"/?early="+early, nil)
		if resp.StatusCode != 200 || resp.Header.Get("X-Request-Id") == "" ||
			resp.Header.Get("X-Content-Type-Options") != "nosniff" || resp.Header.Get("Set-Cookie") != "" {
			t.Errorf("after %s, the answer is %s with %v", early, resp.Status, resp.Header)
		}
	}
}

// An agent may answer before the whole request has arrived.
func TestARequestAndItsAnswerStreamAtTheSameTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents()
	out, in := io.Pipe()
	resp := w.open(t.Context(), "POST", chat+"/echo", out)
	from := bufio.NewReader(resp.Body)
	for i := range 3 {
		w.echo(in, from, fmt.Sprintf("%d: %s", i, strings.Repeat("long ", 20_000)))
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(from); len(rest) > 0 || err != nil {
		t.Errorf("in the end, %d bytes and %v arrive", len(rest), err)
	}
}

// The server must not treat the unread rest of an agent's request as another request. After a small request, the
// connection serves the next one.
func TestTheRestOfARequestToAnAgentIsNotServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents()
	next := "GET /v1/agents HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + w.admin + "\r\n\r\n"
	for size, want := range map[int]int{len(next): 2, 60_000: 2, 1 << 20: 1} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		body := strings.Repeat(next, size/len(next))
		// The agent answers without reading the body.
		request := fmt.Sprintf("POST %s/?redirect=/next HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
			"Content-Length: %d\r\n\r\n%s%s", chat, w.admin, len(body), body, next)
		go func() { _, _ = io.WriteString(conn, request) }() // the server may close it earlier
		if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		answers, _ := io.ReadAll(conn) // until the deadline, or until the server closes it
		_ = conn.Close()
		if n := strings.Count(string(answers), "HTTP/1.1 "); n != want || !strings.HasPrefix(string(answers), "HTTP/1.1 307 ") {
			t.Errorf("a body of %d bytes and a request have %d answers, want %d: %.200s", len(body), n, want, answers)
		}
	}
}

// TestABodyForAnAgentThatBreaksOffIsTheCallersError: it is a 408, as for every other request, and not an error of the
// API.
func TestABodyForAnAgentThatBreaksOffIsTheCallersError(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents()
	r := httptest.NewRequestWithContext(t.Context(), "POST", chat+"/", iotest.ErrReader(io.ErrUnexpectedEOF))
	r.ContentLength = 5
	r.Header.Set("Authorization", "Bearer "+w.admin)
	w.wantProblem(w.serve(r), 408, sandbox.Timeout)
}

// A client that follows a redirect sends its token along, so an agent must not redirect it to other paths of the API.
func TestAnAgentRedirectsToItselfOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents()
	for to, want := range map[string]string{
		"/next?q=1":              chat + "/next?q=1",
		"next":                   chat + "/a/next",
		"http://127.0.0.1/next":  chat + "/next",
		"/v1/leases/x/release":   chat + "/v1/leases/x/release",
		"/../../../../v1/tokens": chat + "/v1/tokens",
		"/%2e%2e/%2e%2e/release": chat + "/release",
		"/..%2f..%2frelease":     chat + "/release",
		"../../../../../release": chat + "/release",
		"//127.0.0.1/../release": chat + "/release",
		w.url + "/v1/tokens":     "",
		"//" + strings.TrimPrefix(w.url, "http://") + "/v1/tokens": "",
		"https://example.com/":       "",
		"javascript:alert(1)":        "",
		"http://user@127.0.0.1/next": "",
		"http://127.0.0.1:8080/next": "",
	} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", w.url+chat+"/a/b?redirect="+url.QueryEscape(to), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+w.admin)
		resp, err := w.client.Transport.RoundTrip(r) // a transport follows no redirects
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := resp.Header.Get("Location"); resp.StatusCode != 307 || got != want {
			t.Errorf("a redirection to %s arrives as %d to %q, want %q", to, resp.StatusCode, got, want)
		}
	}
}

func TestARequestToAnAgentWakesItsSandbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents()
	want[sandbox.Lease](w, w.do("POST", annIn+"/sleep", ""), 200)
	w.askAgent("GET", chat+"/", "")
	if l := want[sandbox.Lease](w, w.do("GET", annIn, ""), 200); l.Phase != sandbox.PhaseAwake {
		t.Errorf("the lease is %+v", l)
	}
}

func TestAgentsThatCannotBeReached(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents()
	w.start(`{"name":"plain","command":["say","1h","no agent"]}`)
	w.start(`{"name":"short","command":["crash","1ms","3","no use"],"endpoint":{"port":81}}`)
	want[sandbox.ProcessWaited](w, w.do("POST", annIn+"/processes/short/wait", `{"exit":true}`), 200)
	w.wantProblem(w.do("GET", annIn+"/agents/nobody/", ""), 404, sandbox.NotFound)
	w.wantProblem(w.do("GET", annIn+"/agents/plain/", ""), 404, sandbox.NotFound)
	if p := w.wantProblem(w.do("GET", annIn+"/agents/short/", ""), 409, sandbox.Conflict); p.Reason != sandbox.ReasonProcessEnded {
		t.Errorf("for an agent that has exited: %+v", p)
	}
	w.wantProblem(w.do("GET", "/v1/leases/did:plc:bob::catan-7/agents/chat/", ""), 404, sandbox.NotFound)

	// The API does not wait for an agent that exits before it listens.
	w.start(`{"name":"never","command":["crash","100ms","3","no use"],"endpoint":{"port":82}}`)
	began := time.Now()
	w.wantProblem(w.do("GET", annIn+"/agents/never/", ""), 409, sandbox.Conflict)
	if took := time.Since(began); took > sandbox.AgentStart/2 {
		t.Errorf("the API waited %s for a dead agent", took)
	}
}

// upgrade opens a connection to an agent that echoes.
func (w *world) upgrade() (io.ReadWriteCloser, *bufio.Reader) {
	w.Helper()
	resp := w.open(w.Context(), "GET", chat+"/live", nil, "Connection", "Upgrade", "Upgrade", "echo")
	both, ok := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode != http.StatusSwitchingProtocols || !ok {
		w.Fatalf("an upgrade is answered with %d", resp.StatusCode)
	}
	return both, bufio.NewReader(both)
}

func (w *world) echo(to io.Writer, from *bufio.Reader, line string) {
	w.Helper()
	if _, err := fmt.Fprintln(to, line); err != nil {
		w.Fatal(err)
	}
	if back, err := from.ReadString('\n'); back != line+"\n" || err != nil {
		w.Fatalf("%q comes back as %q and %v", line, back, err)
	}
}

func TestAWebSocketOfAnAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents()
	to, from := w.upgrade()
	w.echo(to, from, "hello")
	w.echo(to, from, strings.Repeat("long ", 100_000))
	if l := want[sandbox.Lease](w, w.do("POST", annIn+"/release", ""), 200); l.Status == sandbox.LeaseActive {
		t.Errorf("the lease is %+v", l)
	}
	if rest, err := io.ReadAll(from); len(rest) > 0 || err != nil {
		t.Errorf("after the end of the lease, %q and %v arrive", rest, err)
	}
}

func TestConnectionsToAgentsAreLimited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents()
	var first io.Closer
	for range sandbox.MaxConnections {
		to, from := w.upgrade()
		w.echo(to, from, "hello")
		if first == nil {
			first = to
		}
	}
	w.wantProblem(w.do("GET", chat+"/", ""), 429, sandbox.CapacityExceeded)
	if r := want[wire.ExecResult](w, w.do("POST", annIn+"/exec", `{"command":["echo","ok"]}`), 200); r.Stdout != "ok\n" {
		t.Errorf("a command beside the connections says %q", r.Stdout)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	w.until("there is room for another connection", func() bool { return w.do("GET", chat+"/", "").StatusCode == 200 })
}

func TestAConnectionToAnAgentThatStandsStillIsClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) { c.AgentIdle = 5 * time.Second })
	w.agents()
	p := w.wantProblem(w.do("GET", chat+"/silent", ""), 504, sandbox.Timeout)
	if p.Reason != sandbox.ReasonConnectionFailed {
		t.Errorf("a silent agent is %+v", p)
	}
	to, from := w.upgrade()
	for range 12 { // longer than its idle limit
		time.Sleep(500 * time.Millisecond) //nolint:forbidigo // keeps the connection busy
		w.echo(to, from, "still here")
	}
	if rest, err := io.ReadAll(from); len(rest) > 0 || err != nil {
		t.Errorf("in the end, %q and %v arrive", rest, err)
	}
	w.until("the sandbox may sleep", func() bool { return w.do("POST", annIn+"/sleep", "").StatusCode == 200 })
}

// until waits until ok returns true, for at most 10 s.
func (w *world) until(what string, ok func() bool) {
	w.Helper()
	testwait.Until(w, 10*time.Second, what, ok)
}
