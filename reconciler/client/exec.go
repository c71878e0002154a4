package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Exec implements service.Execs. It does not retry: a lost response is UnknownOutcome. With an ID, the caller may
// repeat the call. The transport reads Stdin in a goroutine that ends when its Read returns, as in os/exec.
func (c *Client) Exec(ctx context.Context, r sandbox.LeaseRef, req sandbox.ExecRequest) (sandbox.ExecResult, error) {
	if err := req.CheckAttached(); err != nil {
		return sandbox.ExecResult{}, err
	}
	path, err := runPath(r, req.Session)
	if err != nil {
		return sandbox.ExecResult{}, err
	}
	body := wire.ExecRequest{
		ID:          req.ID,
		Command:     req.Command,
		Shell:       req.Shell,
		Source:      req.Source,
		Env:         req.Env,
		Cwd:         req.Cwd,
		User:        req.User,
		As:          req.As,
		Timeout:     req.Timeout,
		OutputLimit: req.OutputLimit,
	}
	running := running(req.Timeout)
	if req.Stdin == nil && req.Stdout == nil && req.Stderr == nil {
		var result wire.ExecResult
		if err := c.call(ctx,
			request{method: http.MethodPost, path: path, body: body, slow: true, longer: running, once: true},
			&result); err != nil {
			return sandbox.ExecResult{}, err
		}
		return c.result(path, result)
	}
	first, err := json.Marshal(body)
	if err != nil {
		return sandbox.ExecResult{}, sandbox.Errorf(sandbox.Invalid, "lease %s: exec: %w", r, err)
	}
	stream, contentType := io.Reader(bytes.NewReader(first)), wire.JSON
	if req.Stdin != nil {
		stream, contentType = io.MultiReader(stream, &inputLines{stdin: req.Stdin}), wire.NDJSON
	}
	resp, err := c.send(ctx, c.slow+running, http.MethodPost, path, contentType, wire.NDJSON, stream)
	if err != nil {
		return sandbox.ExecResult{}, err
	}
	defer func() { _ = resp.Body.Close() }() // cancels the command if it still runs
	lines := json.NewDecoder(resp.Body)
	result, err := c.readOutput(path, lines, req)
	if err == nil {
		readEnd(resp, lines)
	}
	return result, err
}

// running returns how long a command may run. Without a timeout, the environment's applies, which this program does not
// know.
func running(timeout sandbox.Duration) time.Duration {
	if timeout <= 0 {
		timeout = sandbox.MaxExecTimeout
	}
	return timeout.D()
}

// runPath is the path for running a command, in a session unless session is "".
func runPath(r sandbox.LeaseRef, session string) (path string, err error) {
	if session == "" {
		path, err = leasePath(r.ID)
	} else {
		path, err = sessionPath(sandbox.SessionRef{LeaseID: r.ID, ID: session})
	}
	return path + "/exec" + fence(r), err
}

func (c *Client) result(path string, w wire.ExecResult) (sandbox.ExecResult, error) {
	result, err := w.Result()
	if err != nil {
		return result, c.lost(http.MethodPost, path, false, err)
	}
	return result, nil
}

// readOutput streams the output of a command to its writers, collects the rest, and returns the result.
func (c *Client) readOutput(path string, lines *json.Decoder, req sandbox.ExecRequest) (sandbox.ExecResult, error) {
	out := newOutputs(req)
	for {
		var line wire.ExecOutput
		if err := lines.Decode(&line); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return sandbox.ExecResult{}, c.lost(http.MethodPost, path, false, err)
		}
		switch {
		case line.Error != nil:
			return sandbox.ExecResult{}, line.Error.Err()
		case line.Result != nil:
			result, err := c.result(path, *line.Result)
			return out.collected(result), err
		default:
			if err := out.write(line.Stream, line.Data, line.Encoding); err != nil {
				return sandbox.ExecResult{}, c.lost(http.MethodPost, path, false, err)
			}
		}
	}
}

// outputs passes streamed output to the writers of the request, and collects output without a writer.
type outputs struct {
	writers        map[string]io.Writer
	stdout, stderr *collector
}

func newOutputs(req sandbox.ExecRequest) outputs {
	limit := req.OutputLimit
	if limit <= 0 {
		limit = sandbox.DefaultOutputLimit
	}
	o := outputs{stdout: &collector{limit: limit}, stderr: &collector{limit: limit}}
	o.writers = map[string]io.Writer{"stdout": o.stdout, "stderr": o.stderr}
	if req.Stdout != nil {
		o.writers["stdout"] = req.Stdout
	}
	if req.Stderr != nil {
		o.writers["stderr"] = req.Stderr
	}
	return o
}

// write writes a piece of output. It ignores lines without a known stream, which keep the connection alive.
func (o outputs) write(stream, data, encoding string) error {
	w := o.writers[stream]
	if w == nil {
		return nil
	}
	b, err := wire.Decode(data, encoding)
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

// collected adds the collected output to a result.
func (o outputs) collected(r sandbox.ExecResult) sandbox.ExecResult {
	r.Stdout, r.Stderr = o.stdout.kept, o.stderr.kept
	r.Truncated = r.Truncated || o.stdout.dropped || o.stderr.dropped
	return r
}

// collector keeps the first bytes of a stream.
type collector struct {
	limit   int
	kept    []byte
	dropped bool
}

func (c *collector) Write(b []byte) (int, error) {
	n := min(len(b), c.limit-len(c.kept))
	c.kept = append(c.kept, b[:n]...)
	c.dropped = c.dropped || n < len(b)
	return len(b), nil
}

// inputLines converts standard input to lines of a request.
type inputLines struct {
	stdin io.Reader
	line  []byte // rest of the current line
}

func (i *inputLines) Read(b []byte) (int, error) {
	if len(i.line) == 0 {
		piece := make([]byte, 16<<10)
		n, err := i.stdin.Read(piece)
		if n == 0 {
			return 0, err
		}
		line := wire.ExecInput{}
		line.Data, line.Encoding = wire.Encode(piece[:n])
		if i.line, err = json.Marshal(line); err != nil {
			return 0, err
		}
		i.line = append(i.line, '\n')
	}
	n := copy(b, i.line)
	i.line = i.line[n:]
	return n, nil
}
