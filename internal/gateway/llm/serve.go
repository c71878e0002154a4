package llm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Prefix is the prefix of LLM paths: /llm/<route>/v1/...
const Prefix = "/llm/"

// Serve answers one request of a sandbox. It returns once the call is recorded. To break off an answer, it panics with
// http.ErrAbortHandler instead.
func (b *Broker) Serve(w http.ResponseWriter, r *http.Request, c Caller) {
	name, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, Prefix), "/")
	path = "/" + path
	u, config, bad := b.find(name)
	if bad != nil {
		bad.write(w, guessAPI(r, path))
		return
	}
	defer b.release(u)
	if path == modelsPath && r.Method == http.MethodGet {
		writeModels(w, u.route)
		return
	}
	x := &exchange{
		broker: b, upstream: u, config: config, w: w, r: r, control: http.NewResponseController(w), path: path,
	}
	x.line.LLMCall = sandbox.LLMCall{
		EnvironmentID: config.Environment, LeaseID: c.Lease, Generation: c.Generation, SandboxID: c.Sandbox,
		AgentDID: c.Agent, Route: name, Session: sessionOf(r.Header),
	}
	abort, bad := x.serve()
	if bad != nil {
		bad.write(w, u.route.API)
	}
	_ = x.control.SetWriteDeadline(time.Time{}) // the connection may have gone
	if abort {
		panic(http.ErrAbortHandler)
	}
}

// guessAPI returns the API whose error format a client understands, if no route says it.
func guessAPI(r *http.Request, path string) sandbox.LLMAPI {
	if r.Header.Get("Anthropic-Version") != "" || strings.HasPrefix(path, "/v1/messages") {
		return sandbox.LLMAnthropic
	}
	return sandbox.LLMOpenAI
}

// exchange is a request and its call.
type exchange struct {
	broker   *Broker
	upstream *upstream
	config   *Config
	w        http.ResponseWriter
	r        *http.Request
	control  *http.ResponseController
	path     string
	dialect  dialect

	share  *share
	weight int64 // acquired from Broker.bodies and from the share
	most   sandbox.LLMTokens
	line   line
	begun  bool // the journal has the call's beginning, but not its end
	synced chan error
}

// serve serves the request. It returns a refusal for the client, or abort if the answer must break off.
func (x *exchange) serve() (abort bool, _ *refusal) {
	known := false
	for _, e := range endpoints(x.upstream.route.API) {
		if e.path == x.path && x.r.Method == http.MethodPost {
			x.dialect, known = e.dialect, true
		}
	}
	if !known {
		return false, unknownEndpoint(x.r, x.path, x.line.Route, x.upstream.route)
	}
	if x.line.LeaseID == "" {
		return false, unavailable("the sandbox has no lease that the call could be charged to: acquire a lease first")
	}
	var bad *refusal
	if x.share, bad = x.broker.enter(x.line.SandboxID); bad != nil {
		return false, bad
	}
	defer x.broker.leave(x.line.SandboxID)
	defer x.weigh(0)
	body, bad := x.read()
	if bad != nil {
		return false, bad
	}
	q, bad := x.check(body)
	if bad != nil {
		return false, bad
	}
	x.weigh(int64(len(q.body)))
	if bad := x.begin(q); bad != nil {
		return false, bad
	}
	defer x.end(sandbox.LLMInterrupted, nil) // if nothing else has ended it, such as after a panic
	return x.call(q)
}

// weigh releases memory until n bytes are acquired.
func (x *exchange) weigh(n int64) {
	if n < x.weight {
		x.broker.bodies.Release(x.weight - n)
		x.share.bodies.Release(x.weight - n)
		x.weight = n
	}
}

// acquire waits for memory for n bytes, first for that of the sandbox.
func (x *exchange) acquire(ctx context.Context, n int64) *refusal {
	if err := x.share.bodies.Acquire(ctx, n); err != nil {
		return noMemory("the sandbox")
	}
	if err := x.broker.bodies.Acquire(ctx, n); err != nil {
		x.share.bodies.Release(n)
		return noMemory("other sandboxes")
	}
	x.weight = n
	return nil
}

func noMemory(of string) *refusal {
	return refuse(http.StatusServiceUnavailable, codeBusy,
		"the gateway has no memory for the request, because of other calls of %s: try again", of).again()
}

// check waits for the memory of a check, and checks the body.
func (x *exchange) check(body []byte) (*request, *refusal) {
	ctx, cancel := context.WithTimeout(x.r.Context(), bodyWait)
	defer cancel()
	n := int64(len(body)) * (bodyCopies - 1)
	if err := x.broker.checks.Acquire(ctx, n); err != nil {
		return nil, noMemory("all sandboxes")
	}
	defer x.broker.checks.Release(n)
	return parse(body, x.upstream.route, x.line.Route, endpoint{x.path, x.dialect})
}

// read waits for memory, then reads the body.
func (x *exchange) read() ([]byte, *refusal) {
	r := x.r
	_ = x.control.SetReadDeadline(time.Now().Add(bodyWait + bodyTime)) // the connection may have gone
	size := r.ContentLength
	if size > maxBody {
		return nil, x.tooLarge()
	}
	if size < 0 { // unknown
		size = maxBody
	}
	ctx, cancel := context.WithTimeout(r.Context(), bodyWait)
	defer cancel()
	if bad := x.acquire(ctx, size); bad != nil {
		return nil, bad
	}
	limit := bodyTime + time.Duration(size>>20)*bodyTimeMiB
	_ = x.control.SetReadDeadline(time.Now().Add(limit)) // as above
	var b bytes.Buffer
	b.Grow(int(size) + bytes.MinRead) // growing it later would take more than was acquired
	_, err := b.ReadFrom(io.LimitReader(r.Body, maxBody+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, refuse(http.StatusBadRequest, codeInvalid, "the body did not arrive within %s", limit)
	case err != nil:
		return nil, refuse(http.StatusBadRequest, codeInvalid, "the body could not be read to its end")
	case b.Len() > maxBody:
		return nil, x.tooLarge()
	}
	_ = x.control.SetReadDeadline(time.Time{}) // the server continues to watch the connection
	return b.Bytes(), nil
}

// tooLarge reads some of the remaining body, so that the client reads the answer.
func (x *exchange) tooLarge() *refusal {
	_, _ = io.CopyN(io.Discard, x.r.Body, 4*maxBody) // the client may have gone
	return refuse(http.StatusRequestEntityTooLarge, codeTooLarge, "the body has more than %d MiB", maxBody>>20)
}

// begin reserves the most that the call can use, and records its beginning.
func (x *exchange) begin(q *request) *refusal {
	b := x.broker
	x.line.ID, x.line.Model, x.line.StartedAt = b.options.NewID(), q.model, b.options.Now().UTC()
	x.line.Outcome, x.line.Cost, x.line.Reserved = sandbox.LLMRunning, q.cost, q.most.Total()
	x.most = q.most
	at, bad := b.book.admit(x.line, x.upstream.route)
	if bad != nil {
		return bad
	}
	x.begun = true
	x.synced = make(chan error, 1)
	b.calls.Add(1) // find's count is still held
	go func() {    // ends with a write to disk
		defer b.calls.Done()
		x.synced <- b.book.sync(at)
	}()
	return nil
}

// end records the end of the call once. A nil meter means that the usage is unknown.
func (x *exchange) end(outcome sandbox.LLMOutcome, m *meter) {
	if !x.begun {
		return
	}
	x.begun = false
	l, model := &x.line, x.upstream.route.Models[x.line.Model]
	l.Outcome, l.EndedAt = outcome, x.broker.options.Now().UTC()
	if m != nil && !m.bad {
		l.Tokens = m.tokens
	}
	switch {
	case outcome == sandbox.LLMRejected || outcome == sandbox.LLMUnsent || x.dialect == counting:
		l.Tokens, l.Cost, l.Reserved = sandbox.LLMTokens{}, 0, 0
	case m != nil && m.known():
		l.Cost, l.Reserved = pricing.Tokens(model, l.Tokens), 0
	case m != nil && m.dialect == messages && m.seen && !m.bad && outcome == sandbox.LLMInterrupted:
		most := l.Tokens // the input count is final
		most.Output = max(most.Output, x.most.Output)
		l.Cost, l.Reserved, l.Unknown = pricing.Tokens(model, most), most.Total(), true
	default: // the reservation stays
		l.Unknown = true
	}
	x.broker.book.end(*l)
}

// call sends the request and passes the answer on.
func (x *exchange) call(q *request) (abort bool, _ *refusal) {
	ctx, cancel := context.WithCancelCause(x.r.Context())
	defer cancel(nil)
	defer context.AfterFunc(x.broker.ctx, func() { cancel(errClosed) })()
	idle := x.broker.options.Idle
	watch := time.AfterFunc(idle, func() { cancel(errIdle) })
	defer watch.Stop()

	var reached, wrote, answered atomic.Bool
	body := newPayload(q.body)
	dropSent := func() { // the answer may take minutes, but the upstream may also answer before it has read all
		if wrote.Load() && answered.Load() {
			body.drop()
		}
	}
	req, err := x.request(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:      func(httptrace.GotConnInfo) { reached.Store(true) },
		WroteRequest: func(i httptrace.WroteRequestInfo) { wrote.Store(i.Err == nil); dropSent() },
	}), body)
	if err != nil {
		x.end(sandbox.LLMUnsent, nil)
		return false, refuse(http.StatusBadGateway, codeUnreachable, "the request could not be made: %s", err)
	}
	q.body = nil
	res, err := x.upstream.transport.RoundTrip(req)
	answered.Store(true)
	dropSent()
	x.weigh(0)
	if err != nil {
		return false, x.failed(ctx, err, reached.Load())
	}
	defer res.Body.Close() // it was read, or breaks off
	watch.Reset(idle)
	x.line.Status = res.StatusCode
	switch {
	case res.StatusCode >= 400:
		return false, x.reject(res)
	case res.StatusCode < 200 || res.StatusCode >= 300:
		x.end(sandbox.LLMRejected, nil)
		return false, refuse(http.StatusBadGateway, codeRedirect,
			"the upstream answered with status %d, but the gateway follows no redirects: check the route's upstream",
			res.StatusCode)
	}
	if err := <-x.synced; err != nil {
		x.end(sandbox.LLMInterrupted, nil)
		return false, &refusal{status: http.StatusServiceUnavailable, code: codeJournalFailed, final: true,
			message: "the call was sent, but its record could not be written to the disk"}
	}
	return x.pass(res, watch, q), nil
}

// request returns the request for the upstream.
func (x *exchange) request(ctx context.Context, body *payload) (*http.Request, error) {
	query := ""
	if x.upstream.route.API == sandbox.LLMAnthropic && x.r.URL.RawQuery == "beta=true" {
		query = x.r.URL.RawQuery
	}
	content, err := body.open()
	if err != nil {
		return nil, err
	}
	size := int64(len(*body.bytes.Load()))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.upstream.address(x.path, query), content)
	if err != nil {
		return nil, errors.New("the upstream's address is not valid")
	}
	req.ContentLength, req.GetBody = size, body.open
	req.Header = upstreamHeader(x.r.Header, x.upstream.route, x.config.Account, x.line.LLMCall)
	return req, nil
}

// failed ends a call that got no answer.
func (x *exchange) failed(ctx context.Context, err error, reached bool) *refusal {
	var unsent *unsentError
	if errors.As(err, &unsent) || !reached {
		x.end(sandbox.LLMUnsent, nil)
		return refuse(http.StatusBadGateway, codeUnreachable, "the upstream of route %s cannot be reached: %s",
			x.line.Route, err)
	}
	x.end(sandbox.LLMInterrupted, nil)
	f := refuse(http.StatusBadGateway, codeUpstreamFailed,
		"the upstream of route %s got the request, but gave no answer: %s. The call may have been billed",
		x.line.Route, err)
	if cause := context.Cause(ctx); errors.Is(cause, errIdle) {
		f = refuse(http.StatusGatewayTimeout, codeUpstreamFailed,
			"the upstream of route %s sent nothing within %s. The call may have been billed", x.line.Route,
			x.broker.options.Idle)
	}
	f.final = true
	return f
}

// maxErrorBody limits the body of an upstream's error, in bytes.
const maxErrorBody = 256 << 10

// reject passes an upstream's error on. It removes the key, which the upstream may repeat and the sandbox must not get.
func (x *exchange) reject(res *http.Response) *refusal {
	text, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	x.end(sandbox.LLMRejected, nil)
	if err != nil && len(text) == 0 {
		return refuse(http.StatusBadGateway, codeUpstreamFailed, "the upstream answered with status %d, and broke off",
			res.StatusCode)
	}
	if err := <-x.synced; err != nil {
		return journalFailed()
	}
	text = bytes.ReplaceAll(text, []byte(x.upstream.route.key()), []byte("(key)"))
	answerHeader(x.w.Header(), res.Header)
	_ = x.control.SetWriteDeadline(time.Now().Add(x.broker.options.Idle)) // the client may have gone, here and below
	x.w.WriteHeader(res.StatusCode)
	_, _ = x.w.Write(text)
	return nil
}

// pieceBytes limits one read and write of an answer.
const pieceBytes = 16 << 10

// pass passes an answer on as it arrives, and ends the call.
func (x *exchange) pass(res *http.Response, watch *time.Timer, q *request) (abort bool) {
	kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	stream := kind == "text/event-stream" || err != nil && q.stream
	m := newMeter(x.dialect, stream, q.hide)
	answerHeader(x.w.Header(), res.Header)
	if !stream && res.ContentLength >= 0 { // so the client notices a broken answer
		x.w.Header().Set("Content-Length", strconv.FormatInt(res.ContentLength, 10))
	}
	x.w.WriteHeader(res.StatusCode)
	if stream {
		_ = x.control.Flush() // the client may have gone, which the first write shows
	}
	piece := make([]byte, pieceBytes)
	for {
		n, err := res.Body.Read(piece)
		watch.Reset(x.broker.options.Idle)
		out := m.write(piece[:n])
		whole := false
		if errors.Is(err, io.EOF) {
			var rest []byte
			rest, whole = m.end()
			out = append(out[:len(out):len(out)], rest...)
		}
		sent := x.send(out)
		if m.done || whole { // the upstream's counts are complete, even if the client did not wait
			x.end(sandbox.LLMCompleted, m)
		}
		switch {
		case sent != nil || err != nil && !errors.Is(err, io.EOF):
			x.end(sandbox.LLMInterrupted, m)
			return true
		case err != nil:
			x.end(sandbox.LLMInterrupted, m)
			return false
		}
	}
}

func (x *exchange) send(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if err := x.control.SetWriteDeadline(time.Now().Add(x.broker.options.Idle)); err != nil {
		return err
	}
	if _, err := x.w.Write(b); err != nil {
		return err
	}
	return x.control.Flush()
}
