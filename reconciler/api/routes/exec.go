package routes

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/bodies"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/document"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/exchange"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/problem"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/stream"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (s *Routes) registerExec(d *document.Document) {
	document.AddRaw(d, sandbox.ScopeLease, execOperation(d, huma.Operation{
		OperationID: "exec", Method: http.MethodPost, Path: "/v1/leases/{id}/exec", Tags: []string{"leases"},
		Summary: "Run a command in a lease's sandbox",
	}), func(w http.ResponseWriter, r *http.Request, service service.Service, in *LeaseRef) error {
		return s.exec(w, r, service, in.ref(), "")
	})
}

// execOperation describes an operation that runs a command.
func execOperation(d *document.Document, op huma.Operation) huma.Operation {
	op.Description += "A command that fails is a result, not an error. With Accept: " + wire.NDJSON +
		", the response streams the output, one ExecOutput per line; the last line holds the result. With Content-Type: " +
		wire.NDJSON + ", ExecInput lines of at most 1 MiB follow the request as standard input, while output streams. With " +
		"detach, the response is the started Exec (202)."
	op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		wire.JSON: d.Media(wire.ExecRequest{}), wire.NDJSON: d.Media(wire.ExecInput{}),
	}}
	op.Responses = map[string]*huma.Response{
		"202": d.Content("The command is detached.", wire.JSON, sandbox.Exec{}),
		"200": {
			Description: "The result of the command, or the stream of its output.",
			Content: map[string]*huma.MediaType{
				wire.JSON: d.Media(wire.ExecResult{}), wire.NDJSON: d.Media(wire.ExecOutput{}),
			},
		},
	}
	return op
}

// exec runs a command, in a session unless session is "".
func (s *Routes) exec(w http.ResponseWriter, r *http.Request, service service.Service, ref sandbox.LeaseRef,
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
		bodies.WriteStatusJSON(w, http.StatusAccepted, started)
		return nil
	}
	if !bodies.Accepts(r, wire.NDJSON) {
		result, err := service.Exec(ctx, ref, req)
		if err := cmp.Or(bodies.StdinProblem(ctx), err); err != nil {
			return err
		}
		bodies.WriteJSON(w, wire.ResultOf(result))
		return nil
	}
	streaming, out := stream.Open(w, r, s.Stream, wire.NDJSON, stream.Line("\n"))
	defer out.Close()
	req.Stdout, req.Stderr = output(out, "stdout"), output(out, "stderr")
	result, err := service.Exec(streaming, ref, req)
	err = cmp.Or(bodies.StdinProblem(ctx), err)
	wired := wire.ResultOf(result)
	return endOutput(r, out, err, wire.ExecOutput{Result: &wired},
		func(p *wire.Problem) any { return wire.ExecOutput{Error: p} })
}

// endOutput sends the last line of a command's output: result, or failed of the error's problem. It returns an error
// before the first line, which becomes the whole response.
func endOutput(r *http.Request, out *stream.Stream, err error, result any, failed func(p *wire.Problem) any) error {
	started := out.Close()
	switch {
	case err == nil:
		err = out.SendJSON(result)
	case started:
		p := problem.Of(err)
		exchange.Of(r.Context()).Note(p)
		err = out.SendJSON(failed(&p.Problem))
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
	out  *stream.Stream
	name string
	line []byte // reused
}

func output(to *stream.Stream, name string) io.Writer { return &outputWriter{out: to, name: name} }

func (o *outputWriter) Write(b []byte) (n int, err error) {
	if len(b) == 0 {
		return 0, nil // a flush of a tar stream
	}
	if o.line, err = wire.AppendOutput(o.line[:0], o.name, b); err != nil {
		return 0, err
	}
	if err := o.out.Send(o.line); err != nil {
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
	switch bodies.MediaType(r) {
	case wire.JSON:
		body, err := bodies.ReadAll(w, r.Body, bodies.MaxJSON)
		if err != nil {
			return sandbox.ExecRequest{}, err
		}
		if err := bodies.StrictJSON(body, &in); err != nil {
			return sandbox.ExecRequest{}, err
		}
	case wire.NDJSON:
		if _, err := bodies.TakeOrStream(w, r, bodies.ShortInput); err != nil {
			return sandbox.ExecRequest{}, err
		}
		lines := bodies.NewLines(r.Body)
		err := lines.Decode(&in, bodies.MaxJSON)
		if errors.Is(err, io.EOF) {
			err = problem.BadBody(errors.New("the first line must be the request"))
		}
		if err != nil {
			return sandbox.ExecRequest{}, err
		}
		exchange.Of(r.Context()).Wait() // a person may type the rest
		stdin = bodies.NewStdin(lines, fail)
	default:
		return sandbox.ExecRequest{}, problem.HTTP(http.StatusUnsupportedMediaType,
			"the body must have Content-Type: application/json, or "+wire.NDJSON+" when standard input follows")
	}
	return execOf(in, stdin)
}

// execOf converts a request to its domain form. more, unless nil, follows the standard input of the request.
func execOf(in wire.ExecRequest, stdin io.Reader) (sandbox.ExecRequest, error) {
	first, err := wire.Decode(in.Stdin, in.StdinEncoding)
	if err != nil {
		return sandbox.ExecRequest{}, problem.BadField("stdin", err)
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
