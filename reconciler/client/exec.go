package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
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
		contentType = wire.NDJSON
		if stream, err = withInput(append(first, '\n'), req.Stdin); err != nil {
			return sandbox.ExecResult{}, sandbox.Errorf(sandbox.Invalid, "lease %s: exec: reading stdin: %w", r, err)
		}
	}
	resp, err := c.send(ctx, c.slow+running, http.MethodPost, path, contentType, wire.NDJSON, stream)
	if err != nil {
		return sandbox.ExecResult{}, err
	}
	defer func() { _ = resp.Body.Close() }() // cancels the command if it still runs
	out := newOutputs(req)
	wired, err := readOutput[wire.ExecResult](c, path, resp, out)
	if err != nil {
		return sandbox.ExecResult{}, err
	}
	result, err := c.result(path, wired)
	return out.collected(result), err
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

// outputLine is a line of a streamed command or run.
type outputLine[Result any] struct {
	wire.ExecOutput
	Result *Result `json:"result"`
}

// readOutput passes the output in a response to out, and returns the result in its last line.
func readOutput[Result any](c *Client, path string, resp *http.Response, out *outputs) (result Result, err error) {
	lines := linesOf(resp.Body)
	for lines.Scan() {
		line, err := readLine[Result](lines.Bytes(), out)
		switch {
		case err != nil:
			return result, c.lost(http.MethodPost, path, false, err)
		case line.Error != nil:
			return result, line.Error.Err()
		case line.Result != nil:
			readEnd(resp)
			return *line.Result, nil
		}
	}
	return result, c.lost(http.MethodPost, path, false, cmp.Or(lines.Err(), io.ErrUnexpectedEOF))
}

// readLine reads a line, and passes the piece of output in it to out.
func readLine[Result any](text []byte, out *outputs) (line outputLine[Result], err error) {
	stream, piece, ok := wire.ReadPiece(text, out.piece)
	switch {
	case ok:
		out.piece = piece
	case len(text) == 0: // keeps the connection alive
		return line, nil
	default:
		if err := json.Unmarshal(text, &line); err != nil {
			return line, err
		}
		stream = line.Stream
		if piece, err = wire.Decode(line.Data, line.Encoding); err != nil {
			return line, err
		}
	}
	return line, out.write(stream, piece)
}

// outputs passes streamed output to the writers of the request, and collects output without a writer.
type outputs struct {
	writers        map[string]io.Writer
	stdout, stderr *collector
	piece          []byte // reused
}

func newOutputs(req sandbox.ExecRequest) *outputs {
	limit := req.OutputLimit
	if limit <= 0 {
		limit = sandbox.DefaultOutputLimit
	}
	o := &outputs{stdout: &collector{limit: limit}, stderr: &collector{limit: limit}}
	o.writers = map[string]io.Writer{"stdout": o.stdout, "stderr": o.stderr}
	if req.Stdout != nil {
		o.writers["stdout"] = req.Stdout
	}
	if req.Stderr != nil {
		o.writers["stderr"] = req.Stderr
	}
	return o
}

// write writes a piece of output. It ignores an unknown stream.
func (o *outputs) write(stream string, piece []byte) error {
	w := o.writers[stream]
	if w == nil || len(piece) == 0 {
		return nil
	}
	_, err := w.Write(piece)
	return err
}

// collected adds the collected output to a result.
func (o *outputs) collected(r sandbox.ExecResult) sandbox.ExecResult {
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

const (
	inputPiece = 16 << 10  // bytes of standard input in a line
	shortInput = 128 << 10 // bytes
)

// withInput returns a request with the lines of its standard input. If that is short and in memory, the length of the
// body is known, and the reconciler keeps the connection.
func withInput(request []byte, stdin io.Reader) (io.Reader, error) {
	length := shortInput + 1
	switch known := stdin.(type) {
	case *bytes.Reader:
		length = known.Len()
	case *bytes.Buffer:
		length = known.Len()
	case *strings.Reader:
		length = known.Len()
	}
	if length > shortInput {
		return io.MultiReader(bytes.NewReader(request), &inputLines{stdin: stdin, piece: make([]byte, inputPiece)}), nil
	}
	content := make([]byte, length)
	if _, err := io.ReadFull(stdin, content); err != nil {
		return nil, err
	}
	request = slices.Grow(request, 2*length)
	for piece := range slices.Chunk(content, inputPiece) {
		request = wire.AppendInput(request, piece)
	}
	return bytes.NewReader(request), nil
}

// inputLines converts standard input to lines of a request.
type inputLines struct {
	stdin io.Reader
	piece []byte // reused
	line  []byte // reused
	rest  []byte // of line
}

func (i *inputLines) Read(b []byte) (int, error) {
	if len(i.rest) == 0 {
		n, err := i.stdin.Read(i.piece)
		if n == 0 {
			return 0, err
		}
		i.line = wire.AppendInput(i.line[:0], i.piece[:n])
		i.rest = i.line
	}
	n := copy(b, i.rest)
	i.rest = i.rest[n:]
	return n, nil
}
