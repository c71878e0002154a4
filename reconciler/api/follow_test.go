package api_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/servicetest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/servicetest/inprocess"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/stream"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// followed is a service that reports when following ends, and after how many events.
type followed struct {
	service.Service
	ended chan int
}

func (f followed) FollowEvents(ctx context.Context, filter sandbox.EventFilter, yield func(sandbox.Event) error) error {
	n := 0
	defer func() { f.ended <- n }()
	return f.Service.FollowEvents(ctx, filter, func(e sandbox.Event) error {
		n++
		return yield(e)
	})
}

// narrow limits the kernel's buffer for unread data.
type narrow struct{ net.Listener }

func (n narrow) Accept() (net.Conn, error) {
	c, err := n.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(16 << 10)
	}
	return c, err
}

// crowd is the API on a ledger with many events, and the readers of them.
type crowd struct {
	*testing.T
	servicetest.Env
	url   *url.URL
	token string
	ended chan int
	more  int
}

const (
	crowdEvents = 4000
	eventBytes  = 1024 // at least
)

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	c := &crowd{T: t, Env: inprocess.New(t), token: access.NewToken(), ended: make(chan int, 10)}
	token, err := access.MakeToken("reader", c.token)
	if err != nil {
		t.Fatal(err)
	}
	handler, err := api.New(api.Config{Service: followed{c.Service, c.ended}, Tokens: []access.Token{token}, Now: c.Now,
		KeepAlive: 50 * time.Millisecond, StreamTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	server.Listener = narrow{server.Listener}
	server.Start()
	t.Cleanup(server.Close)
	if c.url, err = url.Parse(server.URL); err != nil {
		t.Fatal(err)
	}
	c.fill()
	return c
}

// fill stores events of eventBytes each: conditions that match no lease.
func (c *crowd) fill() {
	c.Helper()
	numbers := make(chan int)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for n := range numbers {
				_, err := c.Service.Deliver(c.Context(), sandbox.Delivery{ID: strconv.Itoa(n), Body: []byte("{}"), Source: "test",
					Condition: sandbox.Condition{Type: "game.finished", Timestamp: c.Now(), Data: sandbox.ConditionData{
						EnvironmentID: "catan-7", Reason: strings.Repeat("x", eventBytes)}}})
				if err != nil {
					c.Error(err)
				}
			}
		})
	}
	for n := range crowdEvents {
		numbers <- n
	}
	close(numbers)
	wg.Wait()
}

// follow connects a reader of events. room, unless 0, is the size of its kernel buffer.
func (c *crowd) follow(room int, header ...string) (next func() (id int64, err error), hangUp func()) {
	c.Helper()
	conn, err := net.Dial("tcp", c.url.Host)
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = conn.Close() })
	if room > 0 {
		if err := conn.(*net.TCPConn).SetReadBuffer(room); err != nil {
			c.Fatal(err)
		}
	}
	request := "GET /v1/events HTTP/1.1\r\nHost: reconciler\r\nAccept: " + wire.EventStream +
		"\r\nAuthorization: Bearer " + c.token + "\r\n"
	if _, err := fmt.Fprint(conn, request+strings.Join(append(header, "", ""), "\r\n")); err != nil {
		c.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 4<<10), nil)
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		c.Fatalf("answered with %s", resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	return func() (int64, error) {
		for lines.Scan() {
			if id, isID := strings.CutPrefix(lines.Text(), "id: "); isID {
				return strconv.ParseInt(id, 10, 64)
			}
		}
		if err := lines.Err(); err != nil {
			return 0, err
		}
		return 0, net.ErrClosed
	}, func() { _ = conn.Close() }
}

// TestReaderThatDoesNotReadIsCutOff: one reader stalls. The API disconnects it after the stream's timeout, and has by
// then prepared no more than the sockets hold. Meanwhile another reader gets all events, and new ones immediately. The
// stalled reader misses nothing when it reconnects.
func TestReaderThatDoesNotReadIsCutOff(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	slow, _ := c.follow(4 << 10)
	var last int64
	for range 5 {
		var err error
		if last, err = slow(); err != nil {
			t.Fatal(err)
		}
	}
	fast, hangUp := c.follow(0)
	c.drain(fast, 0)
	for cut := false; !cut; {
		select {
		case n := <-c.ended:
			cut = true
			t.Logf("cut off after %d events", n)
			if limit := 256 << 10 / eventBytes; n > limit {
				t.Errorf("%d events were made ready for a reader that took 5; the sockets hold less than %d", n, limit)
			}
		default:
			c.happen()
			if _, err := fast(); err != nil {
				t.Fatalf("the reader that reads: %v", err)
			}
		}
	}
	hangUp()
	for { // read what was in the sockets
		id, err := slow()
		if err != nil {
			break
		}
		last = id
	}
	again, hangUp := c.follow(0, "Last-Event-ID: "+strconv.FormatInt(last, 10))
	c.drain(again, last)
	hangUp()
}

// drain reads to the ledger's latest event, and checks that no event after the given one is missing.
func (c *crowd) drain(next func() (int64, error), after int64) {
	c.Helper()
	info, err := c.Service.Ledger(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	for after < info.LastEventID {
		id, err := next()
		if err != nil || id != after+1 { // this ledger has consecutive ids
			c.Fatalf("after event %d of %d comes %d: %v", after, info.LastEventID, id, err)
		}
		after = id
	}
}

// happen causes one more event.
func (c *crowd) happen() {
	c.Helper()
	c.more++
	_, err := c.Service.Deliver(c.Context(), sandbox.Delivery{
		ID:     fmt.Sprint("more-", c.more),
		Body:   []byte("{}"),
		Source: "test",
		Condition: sandbox.Condition{
			Type:      "game.finished",
			Timestamp: c.Now(),
			Data:      sandbox.ConditionData{EnvironmentID: "catan-7"},
		},
	})
	if err != nil {
		c.Fatal(err)
	}
}

// TestEventsThatAreGoneAreSaidToBe asks to continue from a position whose events are partly purged, as a list and as a
// stream.
func TestEventsThatAreGoneAreSaidToBe(t *testing.T) {
	t.Parallel()
	const ttl = 720 * time.Hour
	w := newWorld(t)
	l := w.game()
	want[sandbox.Lease](w, w.do("POST", annIn+"/release", ""), 200)
	w.Advance(ttl + time.Second)
	w.Purge(ttl)
	info := want[sandbox.LedgerInfo](w, w.do("GET", "/v1/ledger", ""), 200)
	for _, accept := range []string{wire.JSON, wire.EventStream} {
		p := w.wantProblem(w.do("GET", "/v1/events?after_id=1", "", "Accept", accept), 410, sandbox.EventSequenceExpired)
		if !strings.Contains(p.Detail, fmt.Sprintf("follow from the last_event_id that they carry (now %d)",
			info.LastEventID)) {
			t.Errorf("it does not say how to go on: %s", p.Detail)
		}
		w.wantProblem(w.do("GET", "/v1/events", "", "Accept", accept, "Last-Event-ID", "1"), 410,
			sandbox.EventSequenceExpired)
		p = w.wantProblem(w.do("GET", "/v1/events?sandbox_id="+l.SandboxID, "", "Accept", accept), 410,
			sandbox.EventSequenceExpired)
		if !strings.Contains(p.Detail, "follow from sequence 6") {
			t.Errorf("it does not say how to go on: %s", p.Detail)
		}
		w.wantProblem(w.do("GET", "/v1/events?after_id=99", "", "Accept", accept), 422, sandbox.Invalid)
		w.wantProblem(w.do("GET", "/v1/events?after_id=-1", "", "Accept", accept), 422, sandbox.Invalid)
	}
}

// TestAQuietFollowerMayContinueAfterAPurge: idle lines have the id up to which the stream has read, so a client
// does not continue from the latest event of its filter, after which others were purged.
func TestAQuietFollowerMayContinueAfterAPurge(t *testing.T) {
	t.Parallel()
	const ttl = 720 * time.Hour
	w := newWorld(t, func(c *api.Config) { c.KeepAlive = 5 * time.Millisecond })
	want[sandbox.CreatedToken](w, w.do("POST", "/v1/tokens", `{"name":"one","scopes":["read"]}`), 201)
	ctx, leave := context.WithTimeout(t.Context(), 10*time.Second)
	defer leave()
	follow := func(ctx context.Context, header ...string) func() message {
		resp := w.open(ctx, "GET", "/v1/events?type=token.*", nil, append(header, "Accept", wire.EventStream)...)
		if resp.StatusCode != 200 {
			t.Fatalf("it is answered with %s", resp.Status)
		}
		return messages(t, resp.Body)
	}
	next := follow(ctx)
	created := next()
	w.game()
	want[sandbox.Lease](w, w.do("POST", annIn+"/release", ""), 200)
	info := want[sandbox.LedgerInfo](w, w.do("GET", "/v1/ledger", ""), 200)
	last := created
	for last.id != fmt.Sprint(info.LastEventID) {
		if last = next(); last.event != "" || last.data != "" {
			t.Errorf("it brings %+v", last)
		}
	}
	leave()
	w.Advance(ttl + time.Second)
	w.Purge(ttl)
	w.wantProblem(w.do("GET", "/v1/events?type=token.*", "", "Last-Event-ID", created.id), 410, sandbox.EventSequenceExpired)
	next = follow(t.Context(), "Last-Event-ID", last.id)
	want[sandbox.CreatedToken](w, w.do("POST", "/v1/tokens", `{"name":"two","scopes":["read"]}`), 201)
	for {
		if m := next(); m.data != "" {
			if m.event != "token.created" || !strings.Contains(m.data, `"two"`) {
				t.Errorf("it continues with %+v", m)
			}
			break
		}
	}
}

// TestStreamsEndBeforeTheirRequests: a server that stops ends streams first.
func TestStreamsEndBeforeTheirRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game()
	w.start(`{"name":"quiet","command":["say","1h","hello"]}`)
	want[sandbox.Exec](w, w.do("POST", annIn+"/exec", `{"id":"long","command":["sleep","1h"],"detach":true}`), 202)
	want[sandbox.Session](w, w.do("POST", annIn+"/sessions", `{"id":"s"}`), 201)
	for path, accept := range map[string]string{
		"/v1/events": wire.EventStream, annIn + "/sessions/s/events": wire.EventStream,
		annIn + "/processes/quiet/logs?follow=true": "", annIn + "/execs/long/stdout?follow=true": "",
	} {
		end, stop := context.WithCancel(t.Context())
		server := httptest.NewUnstartedServer(w.handler)
		server.Config.BaseContext = func(net.Listener) context.Context { return stream.WithEnd(t.Context(), end) }
		server.Start()
		t.Cleanup(server.Close)
		here := *w
		here.url = server.URL
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		resp := here.open(ctx, "GET", path, nil, "Accept", accept)
		if resp.StatusCode != 200 {
			t.Errorf("%s is answered with %s", path, resp.Status)
		}
		stop()
		_, _ = io.Copy(io.Discard, resp.Body) // the end may be an error
		if ctx.Err() != nil {
			t.Errorf("%s does not end", path)
		}
		cancel()
	}
}

// lagging is a service whose follower falls behind the retained events after one event.
type lagging struct{ service.Service }

func (s lagging) FollowEvents(_ context.Context, _ sandbox.EventFilter, yield func(sandbox.Event) error) error {
	if err := yield(sandbox.Event{ID: 7, Type: sandbox.EventReady}); err != nil {
		return err
	}
	return sandbox.Errorf(sandbox.EventSequenceExpired, "the events after id 7 are no longer all retained")
}

func TestStreamEndsWithItsError(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) { c.Service = lagging{c.Service} })
	next := messages(t, w.open(t.Context(), "GET", "/v1/events", nil, "Accept", wire.EventStream).Body)
	if m := next(); m.id != "7" {
		t.Errorf("the first message is %+v", m)
	}
	if m := next(); m.event != "error" || !strings.Contains(m.data, `"code":"event_sequence_expired"`) ||
		!strings.Contains(m.data, `"status":410`) {
		t.Errorf("the last message is %+v", m)
	}
}
