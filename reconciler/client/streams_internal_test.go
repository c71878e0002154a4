package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// answer is a transport that returns one body for every request. The body ends like a cut connection.
type answer string

func (a answer) RoundTrip(r *http.Request) (*http.Response, error) {
	body := io.MultiReader(strings.NewReader(string(a)), iotest.ErrReader(io.ErrUnexpectedEOF))
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(body), Request: r}, nil
}

// follow reads a stream of events once.
func follow(t *testing.T, stream string) (got []sandbox.Event, after int64, again bool, err error) {
	t.Helper()
	c, err := New(Config{URL: "http://127.0.0.1:1", Token: "x"})
	if err != nil {
		t.Fatal(err)
	}
	c.stream.Transport = answer(stream)
	var f sandbox.EventFilter
	again, err = c.followOnce(context.Background(), &f, func(e sandbox.Event) error {
		got = append(got, e)
		return nil
	})
	return got, f.AfterID, again, err
}

const twoEvents = "id: 1\nevent: sandbox.ready\ndata: {\"id\":1,\"type\":\"sandbox.ready\"}\n\n:\n\nid: 23\n" +
	"data: {\"id\":23}\n\n: idle\nid: 40\n\n"

// TestAStreamOfEventsMayBeCutAnywhere: the client yields complete events, and requests the rest again.
func TestAStreamOfEventsMayBeCutAnywhere(t *testing.T) {
	t.Parallel()
	for n := range len(twoEvents) + 1 {
		got, after, again, err := follow(t, twoEvents[:n])
		whole := strings.Count(twoEvents[:n], "}\n")
		if strings.HasSuffix(twoEvents[:n], "id: 40\n\n") {
			if after != 40 {
				t.Errorf("the stream says that it has passed 40, and the client continues after %d", after)
			}
			continue
		}
		if !again || !sandbox.IsRetryable(err) || len(got) != whole || whole > 0 && after != got[whole-1].ID {
			t.Errorf("cut after %q: %d events, after %d, again %t: %v", twoEvents[:n], len(got), after, again, err)
		}
	}
}

// idle is a transport of streams that stay open without an event.
type idle time.Duration

func (d idle) RoundTrip(r *http.Request) (*http.Response, error) {
	body, end := io.Pipe()
	time.AfterFunc(time.Duration(d), func() { _ = end.CloseWithError(io.ErrUnexpectedEOF) })
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: body, Request: r}, nil
}

// TestAQuietStreamMayEndOften: a proxy ends idle connections. Connections that end early are failures.
func TestAQuietStreamMayEndOften(t *testing.T) {
	t.Parallel()
	for open, want := range map[time.Duration]sandbox.Code{openLong: "", time.Second: sandbox.Unavailable} {
		synctest.Test(t, func(t *testing.T) {
			c, err := New(Config{URL: "http://127.0.0.1:1", Token: "x"})
			if err != nil {
				t.Fatal(err)
			}
			c.stream.Transport = idle(open)
			ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
			defer cancel()
			err = c.FollowEvents(ctx, sandbox.EventFilter{}, func(sandbox.Event) error { return nil })
			if errors.Is(err, context.DeadlineExceeded) != (want == "") || want != "" && sandbox.CodeOf(err) != want {
				t.Errorf("with streams that are open for %s, following ends with %v", open, err)
			}
		})
	}
}

// FuzzEvents compares the reader of event streams with a simple one, even for malformed streams.
func FuzzEvents(f *testing.F) {
	f.Add(twoEvents)
	f.Add("event: error\ndata: {\"code\":\"event_sequence_expired\",\"detail\":\"gone\"}\n\n")
	f.Add("event: error\ndata: no\n\n")
	f.Add("data: null\ndata: {\"id\":-1}\r\ndata:{}\n")
	f.Add("data: {\"id\":9007199254740993,\"at\":\"2026-08-01T12:00:00Z\"}\n\ndata: [1]\n")
	f.Fuzz(func(t *testing.T, stream string) {
		got, after, again, err := follow(t, stream)
		want, last, ends := slowEvents(stream)
		if fmt.Sprint(got) != fmt.Sprint(want) || again == ends && sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Errorf("read %v, want %v; again %t, want %t", got, want, again, !ends)
		}
		if after != last {
			t.Errorf("it continues after %d, want %d", after, last)
		}
		if _, known := errors.AsType[*sandbox.Error](err); !known {
			t.Errorf("the error has no code: %v", err)
		}
	})
}

// slowEvents splits a stream into messages first. last is where another connection continues. ends means that no more
// events follow.
func slowEvents(stream string) (events []sandbox.Event, last int64, ends bool) {
	whole := stream[:strings.LastIndexByte(stream, '\n')+1]
	kind, id := "", int64(0)
	for _, line := range strings.Split(strings.TrimSuffix(whole, "\n"), "\n") {
		line = strings.TrimSuffix(line, "\r")
		switch {
		case strings.HasPrefix(line, "event: "):
			kind = line[len("event: "):]
		case strings.HasPrefix(line, "id: "):
			if n, err := strconv.ParseInt(line[len("id: "):], 10, 64); err == nil {
				id = n
			}
		case line == "":
			if id > 0 {
				last = max(last, id)
			}
			kind, id = "", 0
		case strings.HasPrefix(line, ": "):
			kind, id = "", 0
		case line == "event":
			kind = ""
		case line == "data" || strings.HasPrefix(line, "data: "):
			var e sandbox.Event
			if kind == "error" || json.Unmarshal([]byte(strings.TrimPrefix(strings.TrimPrefix(line, "data"), ": ")), &e) != nil {
				return events, last, true
			}
			events, last = append(events, e), e.ID
		}
	}
	return events, last, false
}
