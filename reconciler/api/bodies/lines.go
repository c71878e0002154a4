package bodies

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/strictjson"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/problem"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
)

// Lines reads the lines of a body, which each hold one JSON value. It holds one line in memory. It skips empty lines.
type Lines struct {
	from *bufio.Reader
	long []byte // a line that is longer than the buffer, reused
}

// NewLines returns the lines of a body.
func NewLines(from io.Reader) *Lines { return &Lines{from: bufio.NewReader(from)} }

// Decode reads the next line, of at most limit bytes, as strictly as other bodies; see StrictJSON. Errors: io.EOF after
// the last line; problems.
func (l *Lines) Decode(v any, limit int) error {
	line, err := l.next(limit)
	if err != nil {
		return err
	}
	return decodeLine(line, v)
}

func decodeLine(line []byte, v any) error {
	problems := strictjson.Decode(line, v)
	for i, p := range problems {
		if p.Name == strictjson.Body {
			problems[i].Problem += "; each line of " + wire.NDJSON + " must be one JSON value"
		}
	}
	return problem.BadFields(problems)
}

// next returns the next line that is not empty, until the next call. Errors: as for Decode.
func (l *Lines) next(limit int) ([]byte, error) {
	for {
		line, err := l.read(limit)
		line = bytes.Trim(line, " \t\r\n")
		switch {
		case len(line) > limit:
			return nil, tooLong(limit)
		case err != nil || len(line) > 0:
			return line, err
		}
	}
}

func tooLong(limit int) error { return problem.TooLarge("a line of the body", int64(limit)) }

// read returns the next line with its end, which the last one need not have.
func (l *Lines) read(limit int) ([]byte, error) {
	most := limit + len("\r\n")
	l.long = l.long[:0]
	for {
		part, err := l.from.ReadSlice('\n')
		if len(l.long)+len(part) > most {
			return nil, tooLong(limit)
		}
		if err == nil && len(l.long) == 0 {
			return part, nil
		}
		l.long = append(l.long, part...)
		var tooLarge *http.MaxBytesError
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err == nil, errors.Is(err, io.EOF) && len(l.long) > 0:
			return l.long, nil
		case errors.Is(err, io.EOF):
			return nil, err
		case errors.As(err, &tooLarge):
			return nil, problem.TooLarge("the body", tooLarge.Limit)
		default:
			return nil, problem.BadBody(fmt.Errorf("is incomplete: %w", err))
		}
	}
}

// stdin reads standard input from the lines of a request. A read error must not look like the end of the input:
// it fails the request.
type stdin struct {
	lines *Lines
	piece []byte // reused
	rest  []byte // of piece
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

// next reads the next line.
func (i *stdin) next() error {
	line, err := i.lines.next(maxInput)
	if err != nil {
		return err
	}
	stream, piece, ok := wire.ReadPiece(line, i.piece)
	if !ok || stream != "" {
		var in wire.ExecInput
		if err := decodeLine(line, &in); err != nil {
			return err
		}
		if piece, err = wire.Decode(in.Data, in.Encoding); err != nil {
			return problem.BadField("data", err)
		}
	}
	i.piece, i.rest = piece, piece
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
