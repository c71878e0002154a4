package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Limits of request bodies, in bytes. The first two limit memory.
const (
	// maxJSON limits a JSON request, which may hold the standard input of a command.
	maxJSON = 8 << 20
	// maxInput limits one line of standard input.
	maxInput = 1 << 20
	// maxStream limits a streamed body: files, archives, standard input.
	maxStream = 64 << 30
)

// readAll reads a body of at most limit bytes.
func readAll(w http.ResponseWriter, from io.ReadCloser, limit int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, from, limit))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, tooLargeProblem("the body", tooLarge.Limit)
	case err != nil:
		return nil, httpProblem(http.StatusRequestTimeout, "reading the request body: "+err.Error())
	}
	return body, nil
}

func tooLargeProblem(what string, limit int64) *problem {
	return httpProblem(http.StatusRequestEntityTooLarge, what+" is larger than the limit of "+bytesText(limit))
}

func badBody(err error) error {
	return sandbox.InvalidFields("request", []sandbox.Field{{Name: "body", Problem: err.Error()}})
}

// lines decodes the JSON values of a body one by one. It holds at most about two values in memory.
type lines struct {
	from io.Reader
	dec  *json.Decoder
	read int64 // total bytes
	left int64 // bytes left for the current value
}

// errLongLine reports a value that exceeds its limit.
var errLongLine = errors.New("the line is too long")

func newLines(from io.Reader) *lines {
	l := &lines{from: from}
	l.dec = json.NewDecoder(l)
	l.dec.DisallowUnknownFields()
	return l
}

// Read implements io.Reader for the decoder.
func (l *lines) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errLongLine
	}
	n, err := l.from.Read(p[:min(int64(len(p)), l.left)])
	l.read += int64(n)
	l.left -= int64(n)
	return n, err
}

// decode reads the next value of at most limit bytes. Errors: io.EOF after the last value; problems.
func (l *lines) decode(v any, limit int64) error {
	ahead := l.read - l.dec.InputOffset() // the decoder has buffered them
	l.left = limit - ahead
	err := l.dec.Decode(v)
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return err
	case errors.Is(err, errLongLine):
		return tooLargeProblem("a line of the body", limit)
	case errors.As(err, &tooLarge):
		return tooLargeProblem("the body", tooLarge.Limit)
	}
	return badBody(err)
}

// inputReader reads standard input from the lines of a request. A read error must not look like the end of the input:
// it fails the request.
type inputReader struct {
	lines *lines
	rest  []byte
	fail  context.CancelCauseFunc
}

func (i *inputReader) Read(b []byte) (int, error) {
	for len(i.rest) == 0 {
		if err := i.next(); err != nil {
			if !errors.Is(err, io.EOF) {
				i.fail(inputError{err})
			}
			return 0, err // io.EOF is the end of standard input
		}
	}
	n := copy(b, i.rest)
	i.rest = i.rest[n:]
	return n, nil
}

// next decodes the next line.
func (i *inputReader) next() error {
	var line wire.ExecInput
	if err := i.lines.decode(&line, maxInput); err != nil {
		return err
	}
	data, err := wire.Decode(line.Data, line.Encoding)
	if err != nil {
		return badBody(err)
	}
	i.rest = data
	return nil
}

// inputError is a read error of standard input.
type inputError struct{ error }

// inputProblem returns the read error of a request's standard input, nil if there was none.
func inputProblem(ctx context.Context) error {
	if e, ok := errors.AsType[inputError](context.Cause(ctx)); ok {
		return e.error
	}
	return nil
}
