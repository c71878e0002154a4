package api_test

import (
	"archive/tar"
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// executor is a service with an Exec of the test.
type executor struct {
	service.Service
	exec func(ctx context.Context, req sandbox.ExecRequest) (sandbox.ExecResult, error)
}

func (e executor) Exec(ctx context.Context, _ sandbox.LeaseRef, req sandbox.ExecRequest) (sandbox.ExecResult, error) {
	return e.exec(ctx, req)
}

func (w *world) open(ctx context.Context, method, path string, body io.Reader, header ...string) *http.Response {
	w.Helper()
	r, err := http.NewRequestWithContext(ctx, method, w.url+path, body)
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.admin)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := w.client.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func TestExecCollected(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game()
	a := w.do("POST", annIn+"/exec", `{"command":["cat"],"stdin":"hé"}`)
	if r := want[wire.ExecResult](w, a, 200); r.Stdout != "hé" || r.StdoutEncoding != "" || r.ExitCode != 0 {
		t.Errorf("the result is %s", a.body)
	}
	a = w.do("POST", annIn+"/exec", `{"command":["cat"],"stdin":"/wD/","stdin_encoding":"base64"}`)
	if r := want[wire.ExecResult](w, a, 200); r.Stdout != "/wD/" || r.StdoutEncoding != "base64" {
		t.Errorf("bytes that are not text arrive as %s", a.body)
	}
	if r := want[wire.ExecResult](w, w.do("POST", annIn+"/exec", `{"command":["exit","3"]}`), 200); r.ExitCode != 3 {
		t.Errorf("exit 3 is %+v", r)
	}
	w.wantProblem(w.do("POST", annIn+"/exec", `{"command":["cat"],"stdin":"x","stdin_encoding":"rot13"}`), 422,
		sandbox.Invalid, "stdin")
	w.wantProblem(w.do("POST", annIn+"/exec?generation=2", `{"command":["cat"]}`), 409, sandbox.Conflict)
}

// TestExecStreamsBothWaysAtOnce: the command answers each line of input before the next one is sent.
func TestExecStreamsBothWaysAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) {
		c.Service = executor{c.Service, func(_ context.Context, req sandbox.ExecRequest) (sandbox.ExecResult, error) {
			for lines := bufio.NewScanner(req.Stdin); lines.Scan(); {
				if _, err := fmt.Fprintf(req.Stdout, "you said %s", lines.Text()); err != nil {
					return sandbox.ExecResult{}, err
				}
			}
			_, err := io.WriteString(req.Stderr, "bye")
			return sandbox.ExecResult{ExitCode: 5}, err
		}}
	})
	input, keyboard := io.Pipe()
	go func() { _, _ = io.WriteString(keyboard, `{"command":["chat"]}`+"\n"+`{"data":"one\n"}`+"\n") }()
	resp := w.open(t.Context(), "POST", annIn+"/exec", input, "Content-Type", wire.NDJSON, "Accept", wire.NDJSON)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != wire.NDJSON {
		t.Fatalf("answered with %s, %s", resp.Status, resp.Header.Get("Content-Type"))
	}
	lines := json.NewDecoder(resp.Body)
	next := func() (o wire.ExecOutput) {
		t.Helper()
		if err := lines.Decode(&o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	for _, word := range []string{"two", "three"} {
		if o := next(); o.Stream != "stdout" || !strings.HasPrefix(o.Data, "you said ") {
			t.Fatalf("the line is %+v", o)
		}
		if _, err := fmt.Fprintf(keyboard, `{"data":"%s\n"}`+"\n", word); err != nil {
			t.Fatal(err)
		}
	}
	if o := next(); o.Data != "you said three" {
		t.Errorf("the line is %+v", o)
	}
	if err := keyboard.Close(); err != nil {
		t.Fatal(err)
	}
	if o := next(); o.Stream != "stderr" || o.Data != "bye" {
		t.Errorf("the line is %+v", o)
	}
	if o := next(); o.Result == nil || o.Result.ExitCode != 5 {
		t.Errorf("the last line is %+v", o)
	}
}

func TestExecStreamEndsWithItsError(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		output string
		status int
	}{"before any output": {"", 409}, "after output": {"half of it", 200}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(c *api.Config) {
				c.Service = executor{c.Service, func(_ context.Context, req sandbox.ExecRequest) (sandbox.ExecResult, error) {
					if test.output != "" {
						if _, err := io.WriteString(req.Stdout, test.output); err != nil {
							return sandbox.ExecResult{}, err
						}
					}
					return sandbox.ExecResult{}, sandbox.Errorf(sandbox.LeaseEnded, "the game is over")
				}}
			})
			a := w.do("POST", annIn+"/exec", `{"command":["play"]}`, "Accept", wire.NDJSON)
			if test.output == "" {
				w.wantProblem(a, test.status, sandbox.LeaseEnded)
				return
			}
			lines := strings.Split(strings.TrimSpace(a.body), "\n")
			last := want[wire.ExecOutput](w, answer{a.Response, lines[len(lines)-1]}, 200)
			if len(lines) != 2 || last.Error == nil || last.Error.Code != sandbox.LeaseEnded || last.Result != nil {
				t.Errorf("the stream is %s", a.body)
			}
		})
	}
}

func TestExecEndsWhenItsReaderHasGone(t *testing.T) {
	t.Parallel()
	started, ended := make(chan struct{}), make(chan error, 1)
	w := newWorld(t, func(c *api.Config) {
		c.KeepAlive = 10 * time.Millisecond
		c.Service = executor{c.Service, func(ctx context.Context, _ sandbox.ExecRequest) (sandbox.ExecResult, error) {
			close(started)
			<-ctx.Done()
			ended <- ctx.Err()
			return sandbox.ExecResult{}, ctx.Err()
		}}
	})
	// With open standard input, only the idle lines detect a client that does not read.
	input, keyboard := io.Pipe()
	go func() { _, _ = io.WriteString(keyboard, `{"command":["wait"]}`+"\n") }()
	ctx, leave := context.WithCancel(t.Context())
	resp := w.open(ctx, "POST", annIn+"/exec", input, "Content-Type", wire.NDJSON, "Accept", wire.NDJSON)
	<-started
	idle := make([]byte, 1)
	if _, err := io.ReadFull(resp.Body, idle); err != nil || idle[0] != '\n' {
		t.Errorf("while nothing happens, the stream brings %q: %v", idle, err)
	}
	leave()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the command ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the command continues")
	}
	if err := keyboard.Close(); err != nil {
		t.Error(err)
	}
}

func TestFilesAsRawContent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game()
	for _, content := range []string{"", "x", strings.Repeat("0123456789", 100_000), strings.Repeat("b", 512)} {
		if a := w.do("PUT", annIn+"/files?path=maps/one.bin&mode=0600", content, "Content-Type",
			"application/octet-stream"); a.StatusCode != 204 {
			t.Fatalf("writing is answered with %d: %s", a.StatusCode, a.body)
		}
		a := w.do("GET", annIn+"/files?path=/workspace/maps/one.bin", "")
		if a.StatusCode != 200 || a.body != content || a.Header.Get("Content-Type") != wire.OctetStream ||
			a.ContentLength != int64(len(content)) {
			t.Errorf("reading is answered with %d, %d bytes of %d", a.StatusCode, len(a.body), len(content))
		}
	}
	a := w.do("GET", annIn+"/files?path=/workspace/maps", "", "Accept", wire.Tar)
	files := tar.NewReader(strings.NewReader(a.body))
	if h, err := files.Next(); err != nil || h.Name != "maps/one.bin" || a.Header.Get("Content-Type") != wire.Tar {
		t.Errorf("as tar it is %+v, %v", h, err)
	}
	w.wantProblem(w.do("GET", annIn+"/files?path=/workspace/none", ""), 404, sandbox.NotFound)
	w.wantProblem(w.do("GET", annIn+"/files?path=/etc/passwd", "", "Accept", wire.Tar), 422, sandbox.Invalid, "path")
	w.wantProblem(w.do("PUT", annIn+"/files?path=/etc/passwd", "x", "Content-Type", "text/plain"), 422,
		sandbox.Invalid, "path")
	w.wantProblem(w.do("PUT", annIn+"/files?path=a&mode=rwx", "x", "Content-Type", "text/plain"), 422,
		sandbox.Invalid, "mode")
	w.wantProblem(w.do("PUT", annIn+"/files?path=a&max_bytes=3", "four", "Content-Type", "text/plain"),
		422, sandbox.Invalid)
	w.wantProblem(w.do("GET", annIn+"/files?path=maps/one.bin&max_bytes=511", ""), 422, sandbox.Invalid)
	resp := w.open(t.Context(), "PUT", annIn+"/files?path=a", io.MultiReader(strings.NewReader("no length")),
		"Content-Type", "text/plain")
	if a := w.do("GET", annIn+"/files?path=a", ""); resp.StatusCode != http.StatusNoContent || a.body != "no length" {
		t.Errorf("a file without length is answered with %s, and reads %q", resp.Status, a.body)
	}
	if a := w.do("GET", annIn+"/files/stat?path=a", ""); !strings.Contains(a.body, `"mode":"0644"`) {
		t.Errorf("its description is %s", a.body)
	}
}

// filesystem is a service with files of the test.
type filesystem struct {
	service.Service
	read io.ReadCloser
}

func (f filesystem) ReadFiles(context.Context, sandbox.LeaseRef, string) (io.ReadCloser, error) {
	return f.read, nil
}

// breaks is a reader that fails at its end.
type breaks struct{ io.Reader }

func (b breaks) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = sandbox.Errorf(sandbox.Unavailable, "the engine is away")
	}
	return n, err
}

func TestFilesThatBreakOffAreNotWhole(t *testing.T) {
	t.Parallel()
	broken := func(n int) *world {
		return newWorld(t, func(c *api.Config) {
			c.Service = filesystem{c.Service, io.NopCloser(breaks{strings.NewReader(strings.Repeat("x", n))})}
		})
	}
	w := broken(100) // an error in the first bytes still gets a status
	w.wantProblem(w.do("GET", annIn+"/files?path=a", "", "Accept", wire.Tar), 503, sandbox.Unavailable)
	w = broken(100_000)
	resp := w.open(t.Context(), "GET", annIn+"/files?path=a", nil, "Accept", wire.Tar)
	if n, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Errorf("%d bytes arrived, and then a clean end", n)
	}
}

// message is one server-sent event.
type message struct{ id, event, data string }

// messages reads server-sent events.
func messages(t *testing.T, body io.Reader) func() message {
	t.Helper()
	lines := bufio.NewScanner(body)
	return func() (m message) {
		t.Helper()
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "id":
				m.id = value
			case "event":
				m.event = value
			case "data":
				m.data = value
			case "":
				if m != (message{}) {
					return m
				}
			}
		}
		t.Fatalf("the stream ended: %v", lines.Err())
		return m
	}
}

func TestEventsAreServerSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) { c.KeepAlive = 5 * time.Millisecond })
	l := w.game()
	ctx, leave := context.WithCancel(t.Context())
	resp := w.open(ctx, "GET", "/v1/events?sandbox_id="+l.SandboxID, nil, "Accept", wire.EventStream)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != wire.EventStream ||
		resp.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("answered with %s, %v", resp.Status, resp.Header)
	}
	next := messages(t, resp.Body)
	accepted, preparing, ready := next(), next(), next()
	if accepted.event != "sandbox.accepted" || preparing.event != "sandbox.preparing" || ready.event != "sandbox.ready" {
		t.Errorf("the stored events are %+v and %+v", accepted, ready)
	}
	want[sandbox.Lease](w, w.do("POST", annIn+"/renew", ""), 200)
	renewed := next()
	var e sandbox.Event
	if err := json.Unmarshal([]byte(renewed.data), &e); err != nil || e.Type != sandbox.EventRenewed || e.Sequence != 4 ||
		fmt.Sprint(e.ID) != renewed.id {
		t.Errorf("the new event is %+v: %v", renewed, err)
	}
	leave()

	again := messages(t, w.open(t.Context(), "GET", "/v1/events?sandbox_id="+l.SandboxID, nil, "Accept", wire.EventStream,
		"Last-Event-ID", ready.id).Body)
	if m := again(); m != renewed {
		t.Errorf("after %s comes %+v, want %+v", ready.id, m, renewed)
	}
	from := messages(t, w.open(t.Context(), "GET", "/v1/events?from_sequence=2&sandbox_id="+l.SandboxID, nil, "Accept",
		wire.EventStream).Body)
	if m := from(); m != ready {
		t.Errorf("from sequence 2 comes %+v, want %+v", m, ready)
	}
	a := w.do("GET", "/v1/events?from_sequence=99&sandbox_id="+l.SandboxID, "", "Accept", wire.EventStream)
	w.wantProblem(a, 422, sandbox.Invalid)
}
