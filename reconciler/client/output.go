package client

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

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
	if w == nil {
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
