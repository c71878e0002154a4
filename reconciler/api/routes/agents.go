package routes

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/bodies"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/document"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/exchange"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/rights"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/stream"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// AgentRoute is the pattern of requests to agents. It accepts every method.
const AgentRoute = "/v1/leases/{id}/agents/{agent}/{path...}"

func (s *Routes) registerAgents(d *document.Document) {
	tags := []string{"agents"}
	document.Add(d, sandbox.ScopeRead, huma.Operation{OperationID: "list-agents", Method: http.MethodGet,
		Path: "/v1/agents", Tags: tags, Summary: "List the agents of leases that have not ended, by lease and name",
		Description: "An agent is a process with an endpoint. No sandbox is woken."}, listAgents)
	d.Handle(AgentRoute, func(w http.ResponseWriter, r *http.Request) error {
		if err := rights.Check(r.Context(), rights.TokenOf(r.Context()), rights.Lease(r.PathValue("id"))); err != nil {
			return err
		}
		return s.askAgent(w, r)
	})
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		s.describeAgentRoute(d, method, tags)
	}
}

// describeAgentRoute adds the route to the document for one method. huma would reject the parameters of agents.
func (s *Routes) describeAgentRoute(d *document.Document, method string, tags []string) {
	id := strings.ToLower(method) + "-agent"
	text := func(name, in, doc string) *huma.Param {
		return &huma.Param{Name: name, In: in, Description: doc, Required: in == "path",
			Schema: &huma.Schema{Type: huma.TypeString}}
	}
	d.API.OpenAPI().AddOperation(&huma.Operation{
		OperationID: id, Method: method, Path: "/v1/leases/{id}/agents/{agent}/{path}", Tags: tags,
		Summary: "Pass a request on to an agent",
		Description: "Wakes the sandbox, waits up to " + sandbox.AgentStart.String() + " until the agent listens, and " +
			"passes the request on: all other methods, queries, streams and WebSockets too. The sandbox stays awake until the " +
			"response ends. Credentials, cookies and forwarding headers of the request are removed. Of the response, only " +
			"headers that cannot affect other pages of this host are kept. A connection without any bytes for " +
			s.AgentIdle.String() + " is closed. 409 if the agent's process has ended; 504 if it does not listen in time.",
		Parameters: []*huma.Param{
			text("id", "path", "The lease's id."), text("agent", "path", "The agent's name."),
			text("path", "path", "The path that the agent gets, with the query."),
			text(wire.HeaderSession, "header", "What the agent works for: 1 to 128 of A-Z, a-z, 0-9, '.', '_', ':' and '-'. "+
				"The agent gets the header, and sends it with its model calls, so that they can be told apart. Optional."),
		},
		Responses: map[string]*huma.Response{
			"200":     {Description: "The agent's response, with the agent's status."},
			"default": d.Content("The request was rejected, or the agent did not answer.", wire.ProblemJSON, wire.Problem{}),
		},
		Security: d.Needs(sandbox.ScopeLease, id, AgentRoute),
	})
}

type agentsInput struct {
	EnvironmentID string             `query:"environment_id"`
	LeaseID       string             `query:"lease_id"`
	State         sandbox.AgentState `query:"state" doc:"starting, running, asleep or ended."`
	After         string             `query:"after" doc:"next_after of the previous page."`
	Limit         int                `query:"limit" doc:"Page size, 1 to 1000. Default 1000." minimum:"1" maximum:"1000"`
}

// Touches returns the target of the request.
func (in agentsInput) Touches() rights.Target { return rights.ReportOn(in.EnvironmentID, in.LeaseID) }

func listAgents(ctx context.Context, service service.Service, in *agentsInput) (*reply[wire.AgentPage], error) {
	agents, err := service.Agents(ctx, sandbox.AgentFilter{
		EnvironmentID: in.EnvironmentID, LeaseID: in.LeaseID, State: in.State, After: in.After, Limit: in.Limit,
	})
	page := wire.AgentPage{Agents: notNil(agents)}
	if full(len(agents), in.Limit) {
		page.NextAfter = agents[len(agents)-1].ID
	}
	return replyWith(page, err)
}

// askAgent forwards a request to an agent.
func (s *Routes) askAgent(w http.ResponseWriter, r *http.Request) error {
	lease, name := r.PathValue("id"), r.PathValue("agent")
	session := r.Header.Get(wire.HeaderSession)
	if err := sandbox.CheckSessionLabel(session); err != nil {
		return err
	}
	if s.Connector == nil {
		return sandbox.Errorf(sandbox.Unavailable, "this service passes no requests on to agents")
	}
	taken, err := bodies.TakeOrStream(w, r, maxTakenBody)
	if err != nil {
		return err
	}
	if !taken {
		exchange.Of(r.Context()).Wait()
	}
	ref := sandbox.ProcessRef{LeaseRef: sandbox.LeaseRef{ID: lease}, Name: name}
	conn, err := s.Connector.Connect(r.Context(), ref)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the response reports errors
	var failed error
	proxy := &httputil.ReverseProxy{
		Transport: finalOnly{r.Context(), &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				return idleConn{conn, s.AgentIdle}, nil
			},
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: 64 << 10,
		}},
		FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = &url.URL{Scheme: "http", Host: "127.0.0.1", RawQuery: r.URL.RawQuery}
			p.Out.URL.Path, p.Out.URL.RawPath = agentPath(r.URL)
			p.Out.Host = "127.0.0.1"
			agentHeader(p.Out.Header, lease, session)
			p.Out.Header.Set(wire.HeaderRequestID, exchange.Of(r.Context()).ID)
		},
		ModifyResponse: func(answer *http.Response) error {
			answer.Header = answerHeader(answer.Header, answer.Request.URL, agentsPath(lease, name))
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
	}
	out := steady{stream.NewSteady(w, s.Stream.Timeout)}
	proxy.ServeHTTP(out, r)
	out.Extend()
	if _, ok := errors.AsType[*sandbox.Error](failed); failed == nil || ok || r.Context().Err() != nil {
		return failed
	}
	code := sandbox.UnknownOutcome // the agent may have acted on the request
	if errors.Is(failed, os.ErrDeadlineExceeded) {
		code = sandbox.Timeout
	}
	return sandbox.Errorf(code, "lease %s: agent %s did not answer the request: %w: read the log of its process",
		lease, name, failed).WithReason(sandbox.ReasonConnectionFailed)
}

// finalOnly drops informational responses such as 103. httputil.ReverseProxy would forward them with all their headers,
// and then forget the headers of the final response that are already set. It gets them through the context of its
// request, so finalOnly uses the context of the request that it serves.
type finalOnly struct {
	ctx context.Context
	to  http.RoundTripper
}

func (f finalOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	return f.to.RoundTrip(r.WithContext(f.ctx))
}

// maxTakenBody is the largest buffered body of a request to an agent, in bytes. The agent gets a larger one while it
// arrives, and may answer before its end.
const maxTakenBody = 64 << 10

// agentsPath returns the path of requests to an agent.
func agentsPath(lease, name string) string {
	return "/v1/leases/" + url.PathEscape(lease) + "/agents/" + url.PathEscape(name)
}

// agentPath returns the agent's part of a path: everything after the first five segments.
func agentPath(u *url.URL) (decoded, raw string) {
	raw = u.EscapedPath()
	for range 6 {
		_, raw, _ = strings.Cut(raw, "/")
	}
	raw = "/" + raw
	decoded, err := url.PathUnescape(raw)
	if err != nil { // the server has parsed it
		panic(err)
	}
	return decoded, raw
}

// agentHeader removes the headers that an agent must not see, and adds the lease and the session. The proxy has already
// removed forwarding headers.
func agentHeader(h http.Header, lease, session string) {
	for name := range h {
		if strings.HasPrefix(name, "X-Sandbox-") {
			h.Del(name)
		}
	}
	for _, name := range []string{"Authorization", "Cookie", "Referer", "X-Real-Ip"} {
		h.Del(name)
	}
	h.Set("X-Sandbox-Lease", lease)
	if session != "" {
		h.Set(wire.HeaderSession, session)
	}
}

// answerHeaders are the headers of an agent's answer that its caller gets. Code in the sandbox may be hostile: it must
// not set cookies of this host, change what browsers store or enforce for it, or control proxies.
var answerHeaders = []string{
	"Accept-Ranges", "Allow", "Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language",
	"Content-Length", "Content-Range", "Content-Type", "Date", "Etag", "Expires", "Last-Modified",
	"Mcp-Protocol-Version", "Mcp-Session-Id", "Retry-After", "Vary",
	"Connection", "Upgrade", "Sec-Websocket-Accept", "Sec-Websocket-Extensions", "Sec-Websocket-Protocol",
}

// answerHeader returns the headers of an agent's answer for its caller. here is the agent's path on this host. A
// browser must not treat the answer as a page of this host.
func answerHeader(from http.Header, request *url.URL, here string) http.Header {
	h := http.Header{
		"Content-Security-Policy": {"sandbox; default-src 'none'"}, "Cross-Origin-Resource-Policy": {"same-origin"},
	}
	for _, name := range answerHeaders {
		if values := from.Values(name); len(values) > 0 {
			h[name] = values
		}
	}
	for name, values := range from {
		if strings.HasPrefix(name, "Agent-") {
			h[name] = values
		}
	}
	if to := redirection(from.Get("Location"), request, here); to != "" {
		h.Set("Location", to)
	}
	return h
}

// redirection returns where an agent may redirect a client: to a path of the agent, "" otherwise. A client sends its
// token to any path of this host that a redirect names.
func redirection(location string, request *url.URL, here string) string {
	to, err := request.Parse(location)
	if location == "" || err != nil || to.Host != request.Host || to.User != nil {
		return ""
	}
	// Clean removes dot segments that lead out of the agent's path, even encoded ones.
	under := url.URL{Path: path.Clean("/" + to.Path), RawQuery: to.RawQuery, Fragment: to.Fragment}
	return here + under.String()
}

// idleConn breaks a connection that carries no bytes for a while.
type idleConn struct {
	net.Conn
	limit time.Duration
}

func (c idleConn) Read(p []byte) (int, error)  { return c.within(c.Conn.Read, p) }
func (c idleConn) Write(p []byte) (int, error) { return c.within(c.Conn.Write, p) }

// within moves bytes in one direction. Moved bytes extend the deadline of both directions.
func (c idleConn) within(move func([]byte) (int, error), p []byte) (int, error) {
	c.extend()
	n, err := move(p)
	if n > 0 {
		c.extend()
	}
	return n, err
}

// extend restarts the idle time. It fails only for a closed connection, and then the next call fails too.
func (c idleConn) extend() { _ = c.SetDeadline(time.Now().Add(c.limit)) }

// steady is a response that may be hijacked.
type steady struct{ *stream.Steady }

// Hijack implements http.Hijacker: the connection speaks another protocol from now on, without the server's deadlines.
func (s steady) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(s.Steady).Hijack()
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if x, ok := s.ResponseWriter.(*exchange.Exchange); ok {
		x.Status = http.StatusSwitchingProtocols
	}
	return conn, buffered, err
}
