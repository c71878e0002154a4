package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

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
	"data: {\"id\":23}\n\n"

// TestAStreamOfEventsMayBeCutAnywhere: the client yields complete events, and requests the rest again.
func TestAStreamOfEventsMayBeCutAnywhere(t *testing.T) {
	t.Parallel()
	for n := range len(twoEvents) {
		got, after, again, err := follow(t, twoEvents[:n])
		whole := strings.Count(twoEvents[:n], "}\n")
		if !again || !sandbox.IsRetryable(err) || len(got) != whole || whole > 0 && after != got[whole-1].ID {
			t.Errorf("cut after %q: %d events, after %d, again %t: %v", twoEvents[:n], len(got), after, again, err)
		}
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
		want, ends := slowEvents(stream)
		if fmt.Sprint(got) != fmt.Sprint(want) || again == ends && sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Errorf("read %v, want %v; again %t, want %t", got, want, again, !ends)
		}
		if len(got) > 0 && after != got[len(got)-1].ID {
			t.Errorf("it continues after %d, but the last event was %d", after, got[len(got)-1].ID)
		}
		if _, known := errors.AsType[*sandbox.Error](err); !known {
			t.Errorf("the error has no code: %v", err)
		}
	})
}

// slowEvents splits a stream into messages first. ends means that no more events follow.
func slowEvents(stream string) (events []sandbox.Event, ends bool) {
	whole := stream[:strings.LastIndexByte(stream, '\n')+1]
	kind := ""
	for _, line := range strings.Split(strings.TrimSuffix(whole, "\n"), "\n") {
		line = strings.TrimSuffix(line, "\r")
		switch {
		case strings.HasPrefix(line, "event: "):
			kind = line[len("event: "):]
		case line == "" || strings.HasPrefix(line, ": "):
			kind = ""
		case line == "event":
			kind = ""
		case line == "data" || strings.HasPrefix(line, "data: "):
			var e sandbox.Event
			if kind == "error" || json.Unmarshal([]byte(strings.TrimPrefix(strings.TrimPrefix(line, "data"), ": ")), &e) != nil {
				return events, true
			}
			events = append(events, e)
		}
	}
	return events, false
}
