package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (s *server) registerExec(d *document) {
	addRaw(d, sandbox.ScopeLease, execOperation(d, huma.Operation{
		OperationID: "exec", Method: http.MethodPost, Path: "/v1/leases/{id}/exec", Tags: []string{"leases"},
		Summary: "Run a command in a lease's sandbox",
	}), func(w http.ResponseWriter, r *http.Request, service service.Service, in *LeaseRef) error {
		return s.exec(w, r, service, in.ref(), "")
	})
}

// execOperation describes an operation that runs a command.
func execOperation(d *document, op huma.Operation) huma.Operation {
	op.Description += "A command that fails is a result, not an error. With Accept: " + wire.NDJSON +
		", the response streams the output, one ExecOutput per line; the last line holds the result. With Content-Type: " +
		wire.NDJSON + ", ExecInput lines of at most 1 MiB follow the request as standard input, while output streams. With " +
		"detach, the response is the started Exec (202)."
	op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		wire.JSON: d.media(wire.ExecRequest{}), wire.NDJSON: d.media(wire.ExecInput{}),
	}}
	op.Responses = map[string]*huma.Response{
		"202": d.content("The command is detached.", wire.JSON, sandbox.Exec{}),
		"200": {
			Description: "The result of the command, or the stream of its output.",
			Content: map[string]*huma.MediaType{
				wire.JSON: d.media(wire.ExecResult{}), wire.NDJSON: d.media(wire.ExecOutput{}),
			},
		},
	}
	return op
}

// exec runs a command, in a session unless session is "".
func (s *server) exec(w http.ResponseWriter, r *http.Request, service service.Service, ref sandbox.LeaseRef,
	session string) error {
	ctx, fail := context.WithCancelCause(r.Context())
	defer fail(nil)
	r = r.WithContext(ctx)
	req, err := readExec(w, r, fail)
	if err != nil {
		return err
	}
	req.Session = session
	if req.Detach {
		started, err := service.StartExec(r.Context(), ref, req)
		if err != nil {
			return err
		}
		writeStatusJSON(w, http.StatusAccepted, started)
		return nil
	}
	if !accepts(r, wire.NDJSON) {
		result, err := service.Exec(ctx, ref, req)
		if err := cmp.Or(inputProblem(ctx), err); err != nil {
			return err
		}
		writeJSON(w, wire.ResultOf(result))
		return nil
	}
	streaming, out := s.openStream(w, r, wire.NDJSON, "\n")
	defer out.close()
	req.Stdout, req.Stderr = outputWriter{out, "stdout"}, outputWriter{out, "stderr"}
	result, err := service.Exec(streaming, ref, req)
	err = cmp.Or(inputProblem(ctx), err)
	started := out.close()
	switch {
	case err == nil:
		wired := wire.ResultOf(result)
		err = out.writeJSON(wire.ExecOutput{Result: &wired})
	case started:
		p := problemOf(err)
		exchangeOf(r.Context()).note(p)
		err = out.writeJSON(wire.ExecOutput{Error: &p.Problem})
	default:
		return err
	}
	if err != nil {
		panic(http.ErrAbortHandler) // aborts the response, so that the client sees that it is incomplete
	}
	return nil
}

// outputWriter sends the output of a command as lines of the stream.
type outputWriter struct {
	out  *stream
	name string
}

func (o outputWriter) Write(b []byte) (int, error) {
	line := wire.ExecOutput{Stream: o.name}
	line.Data, line.Encoding = wire.Encode(b)
	if err := o.out.writeJSON(line); err != nil {
		return 0, err
	}
	return len(b), nil
}

// readExec reads the request and, if the body has more lines, prepares standard input. fail cancels the command if its
// input cannot be read.
func readExec(w http.ResponseWriter, r *http.Request, fail context.CancelCauseFunc) (sandbox.ExecRequest, error) {
	var (
		in    wire.ExecRequest
		stdin io.Reader
	)
	switch mediaType(r) {
	case wire.JSON:
		body, err := readAll(w, r.Body, maxJSON)
		if err != nil {
			return sandbox.ExecRequest{}, err
		}
		if err := strictJSON(body, &in); err != nil {
			return sandbox.ExecRequest{}, badBody(err)
		}
	case wire.NDJSON:
		if err := answerWhileReading(w); err != nil {
			return sandbox.ExecRequest{}, err
		}
		lines := newLines(r.Body)
		err := lines.decode(&in, maxJSON)
		if errors.Is(err, io.EOF) {
			err = badBody(errors.New("the first line must be the request"))
		}
		if err != nil {
			return sandbox.ExecRequest{}, err
		}
		exchangeOf(r.Context()).body.wait() // a person may type the rest
		stdin = &inputReader{lines: lines, fail: fail}
	default:
		return sandbox.ExecRequest{}, httpProblem(http.StatusUnsupportedMediaType,
			"the body must have Content-Type: application/json, or "+wire.NDJSON+" when standard input follows")
	}
	return execOf(in, stdin)
}

// execOf converts a request to its domain form. more, unless nil, follows the standard input of the request.
func execOf(in wire.ExecRequest, stdin io.Reader) (sandbox.ExecRequest, error) {
	first, err := wire.Decode(in.Stdin, in.StdinEncoding)
	if err != nil {
		return sandbox.ExecRequest{}, badBody(err)
	}
	switch {
	case stdin != nil:
		stdin = io.MultiReader(bytes.NewReader(first), stdin)
	case len(first) > 0:
		stdin = bytes.NewReader(first)
	}
	return sandbox.ExecRequest{
		ID:          in.ID,
		Detach:      in.Detach,
		Command:     in.Command,
		Shell:       in.Shell,
		Source:      in.Source,
		Env:         in.Env,
		Cwd:         in.Cwd,
		User:        in.User,
		As:          in.As,
		Timeout:     in.Timeout,
		OutputLimit: in.OutputLimit,
		Stdin:       stdin,
	}, nil
}
