package api_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// endless is a body that begins with head and never ends. It counts the bytes that were read.
type endless struct {
	head string
	read int64
	most int64 // the test fails if more is read
	t    *testing.T
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.head)
	e.head = e.head[n:]
	for i := n; i < len(p); i++ {
		p[i] = 'a'
	}
	if e.read += int64(len(p)); e.read > e.most {
		e.t.Errorf("%d bytes were read", e.read)
		return 0, io.ErrUnexpectedEOF
	}
	return len(p), nil
}

func (e *endless) Close() error { return nil }

// ask makes the handler answer a request whose body does not come from a connection.
func (w *world) ask(path, contentType string, body io.ReadCloser, header ...string) answer {
	w.Helper()
	r := httptest.NewRequestWithContext(w.Context(), http.MethodPost, path, body)
	r.ContentLength = -1
	r.Header = http.Header{"Authorization": {"Bearer " + w.admin}, "Content-Type": {contentType}}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return w.serve(r)
}

// serve makes the handler answer a request without a connection.
func (w *world) serve(r *http.Request) answer {
	w.Helper()
	recorded := httptest.NewRecorder()
	w.handler.ServeHTTP(recorded, r)
	a := answer{recorded.Result(), recorded.Body.String()}
	a.Request = r
	return a
}

// TestNoRequestIsReadBeyondItsLimit sends endless bodies to every route that reads a request into memory.
func TestNoRequestIsReadBeyondItsLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game()
	const run = "--x\r\nContent-Disposition: form-data; name=\"run\"\r\n\r\n"
	for name, test := range map[string]struct {
		path, contentType, head, limit string
		most                           int64
	}{
		"a command":                      {annIn + "/exec", wire.JSON, `{"command":["cat"],"stdin":"`, "8 MiB", 8 << 20},
		"a command with input to follow": {annIn + "/exec", wire.NDJSON, `{"command":["cat"],"stdin":"`, "8 MiB", 8 << 20},
		"a command after spaces":         {annIn + "/exec", wire.NDJSON, strings.Repeat(" ", 9<<20), "8 MiB", 8 << 20},
		"a command in a session":         {annIn + "/sessions/s/exec", wire.NDJSON, `{"shell":"`, "8 MiB", 8 << 20},
		"a run":                          {"/v1/runs", wire.JSON, `{"command":["`, "8 MiB", 8 << 20},
		"a run in parts": {"/v1/runs", "multipart/form-data; boundary=x",
			run + `{"command":["`, "8 MiB", 8 << 20},
		"an acquire":  {"/v1/leases", wire.JSON, `{"agent_did":"`, "8 MiB", 8 << 20},
		"a process":   {annIn + "/processes", wire.JSON, `{"name":"`, "8 MiB", 8 << 20},
		"a session":   {annIn + "/sessions", wire.JSON, `{"id":"`, "8 MiB", 8 << 20},
		"a condition": {"/v1/conditions", wire.JSON, `{"type":"`, "64 KiB", 64 << 10},
		"a token":     {"/v1/tokens", wire.JSON, `{"name":"`, "8 MiB", 8 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := *w
			w.T = t
			a := w.ask(test.path, test.contentType, &endless{head: test.head, most: test.most + 64<<10, t: t})
			if w.wantProblem(a, 413, sandbox.Invalid); !strings.Contains(a.body, test.limit) {
				t.Errorf("the problem does not name %s: %s", test.limit, a.body)
			}
		})
	}
}

// TestALineOfInputThatIsTooLongEndsItsCommand: truncated input must not look like the end of the input.
func TestALineOfInputThatIsTooLongEndsItsCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) {
		c.Service = executor{c.Service, func(ctx context.Context, req sandbox.ExecRequest) (sandbox.ExecResult, error) {
			if req.Stdout != nil {
				if _, err := io.WriteString(req.Stdout, "ready"); err != nil {
					return sandbox.ExecResult{}, err
				}
			}
			if n, err := io.Copy(io.Discard, req.Stdin); err == nil || n != 3 {
				t.Errorf("%d bytes were read, and then %v", n, err)
			}
			if ctx.Err() == nil {
				t.Error("the command continues")
			}
			return sandbox.ExecResult{}, nil // like a backend that treats the truncated input as complete
		}}
	})
	const first = `{"command":["cat"]}` + "\n" + `{"data":"one"}` + "\n"
	for name, test := range map[string]struct {
		next   string
		status int
		says   string
	}{
		"too long":      {`{"data":"`, 413, "1 MiB"},
		"no such field": {`{"date":"x"}` + "\n", 422, "date"},
		"no text":       {`{"data":"!","encoding":"base64"}` + "\n", 422, "base64"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := &endless{head: first + test.next, most: 1<<20 + 64<<10, t: t}
			if a := w.ask(annIn+"/exec", wire.NDJSON, body); a.StatusCode != test.status ||
				!strings.Contains(a.body, test.says) {
				t.Errorf("it is answered with %d: %s", a.StatusCode, a.body)
			}
			body = &endless{head: first + test.next, most: 1<<20 + 64<<10, t: t}
			a := w.ask(annIn+"/exec", wire.NDJSON, body, "Accept", wire.NDJSON)
			if status := fmt.Sprintf(`"status":%d`, test.status); a.StatusCode != 200 || !strings.Contains(a.body, "ready") ||
				!strings.Contains(a.body, status) || strings.Contains(a.body, `"result"`) {
				t.Errorf("the stream is %d: %s", a.StatusCode, a.body)
			}
		})
	}
}

// TestLinesUpToTheirLimitAreInput: any number of lines is accepted.
func TestLinesUpToTheirLimitAreInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game()
	const piece = 1<<20 - len(`{"data":""}`)
	line := fmt.Sprintf(`{"data":%q}`, strings.Repeat("a", piece))
	for name, lines := range map[string]struct {
		n   int
		end string
	}{"of Unix": {20, "\n"}, "of Windows": {2, "\r\n"}, "and empty lines": {2, "\n\n \n"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := *w
			w.T = t
			body := `{"command":["cat"],"output_limit":33554432}` + lines.end + strings.Repeat(line+lines.end, lines.n)
			a := w.ask(annIn+"/exec", wire.NDJSON, io.NopCloser(strings.NewReader(body)))
			if r := want[wire.ExecResult](&w, a, 200); len(r.Stdout) != lines.n*piece {
				t.Errorf("%d bytes came back of %d", len(r.Stdout), lines.n*piece)
			}
		})
	}
}

func TestABodyThatSaysThatItIsTooLargeIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, annIn+"/files?path=/workspace", &endless{t: t})
	r.ContentLength = 64<<30 + 1
	r.Header = http.Header{"Authorization": {"Bearer " + w.admin}, "Content-Type": {wire.Tar}}
	a := w.serve(r)
	if w.wantProblem(a, 413, sandbox.Invalid); !strings.Contains(a.body, "64 GiB") {
		t.Errorf("the problem does not name the limit: %s", a.body)
	}
}
