package bodies

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/problem"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
)

// Lines decodes the JSON values of a body one by one. It holds at most about three values in memory.
type Lines struct {
	from io.Reader
	dec  *json.Decoder
	read int64 // total bytes
	left int64 // bytes left for the current value

	value json.RawMessage // the current value
}

// errLongLine reports a value that exceeds its limit.
var errLongLine = errors.New("the line is too long")

// NewLines returns the lines of a body. They are as strict as other bodies; see StrictJSON.
func NewLines(from io.Reader) *Lines {
	l := &Lines{from: from}
	l.dec = json.NewDecoder(l)
	return l
}

// Read implements io.Reader for the decoder.
func (l *Lines) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errLongLine
	}
	n, err := l.from.Read(p[:min(int64(len(p)), l.left)])
	l.read += int64(n)
	l.left -= int64(n)
	return n, err
}

// Decode reads the next value of at most limit bytes. Errors: io.EOF after the last value; problems.
func (l *Lines) Decode(v any, limit int64) error {
	ahead := l.read - l.dec.InputOffset() // the decoder has buffered them
	l.left = limit - ahead
	err := l.dec.Decode(&l.value)
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		return StrictJSON(l.value, v)
	case errors.Is(err, io.EOF):
		return err
	case errors.Is(err, errLongLine):
		return problem.TooLarge("a line of the body", limit)
	case errors.As(err, &tooLarge):
		return problem.TooLarge("the body", tooLarge.Limit)
	}
	return problem.BadBody(fmt.Errorf("is not JSON: %w", err))
}

// stdin reads standard input from the lines of a request. A read error must not look like the end of the input:
// it fails the request.
type stdin struct {
	lines *Lines
	rest  []byte
	fail  context.CancelCauseFunc
}

// NewStdin returns the standard input in the rest of a body. fail gets a read error.
func NewStdin(from *Lines, fail context.CancelCauseFunc) io.Reader {
	return &stdin{lines: from, fail: fail}
}

func (i *stdin) Read(b []byte) (int, error) {
	for len(i.rest) == 0 {
		if err := i.next(); err != nil {
			if !errors.Is(err, io.EOF) {
				i.fail(stdinError{err})
			}
			return 0, err // io.EOF is the end of standard input
		}
	}
	n := copy(b, i.rest)
	i.rest = i.rest[n:]
	return n, nil
}

// next decodes the next line.
func (i *stdin) next() error {
	var line wire.ExecInput
	if err := i.lines.Decode(&line, maxInput); err != nil {
		return err
	}
	data, err := wire.Decode(line.Data, line.Encoding)
	if err != nil {
		return problem.BadField("data", err)
	}
	i.rest = data
	return nil
}

// stdinError is a read error of standard input.
type stdinError struct{ error }

// StdinProblem returns the read error of a request's standard input, nil if there was none.
func StdinProblem(ctx context.Context) error {
	if e, ok := errors.AsType[stdinError](context.Cause(ctx)); ok {
		return e.error
	}
	return nil
}
