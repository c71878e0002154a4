package routes

import (
	"bytes"
	"errors"
	"io"
	"mime/multipart"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/bodies"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/document"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/exchange"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/problem"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/rights"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/stream"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// maxCollected limits the collected files of a run that is not streamed, in bytes.
const maxCollected = 8 << 20

const formData = "multipart/form-data"

func (s *Routes) registerRuns(d *document.Document) {
	document.AddRead(d, sandbox.ScopeLease, huma.Operation{
		OperationID: "run", Method: http.MethodPost, Path: "/v1/runs", Tags: []string{"runs"},
		Summary: "Run one command in a new sandbox",
		Description: "The sandbox is always destroyed afterwards. With " + formData +
			", the part \"run\" is the request as JSON. The parts \"files\", a tar stream to unpack in /workspace, and " +
			"\"stdin\" may follow in this order. With Accept: " + wire.NDJSON + ", the response streams output and collected " +
			"files (the stream \"files\"), one RunOutput per line; the last line holds the result.",
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			wire.JSON: d.Media(wire.RunRequest{}), formData: {Schema: &huma.Schema{Type: huma.TypeObject}},
		}},
		Responses: map[string]*huma.Response{"200": {
			Description: "The result of the run, or the stream of its output.",
			Content: map[string]*huma.MediaType{
				wire.JSON:   d.Media(wire.RunResult{}),
				wire.NDJSON: d.Media(wire.RunOutput{}),
			},
		}},
	}, readRun, s.run)
}

// runInput is the request of a run, from the body.
type runInput struct{ sandbox.RunRequest }

// Touches returns the target of the request.
func (in runInput) Touches() rights.Target { return rights.Environment(in.EnvironmentID) }

func (s *Routes) run(w http.ResponseWriter, r *http.Request, service service.Service, in runInput) error {
	req, token := in.RunRequest, rights.TokenOf(r.Context())
	req.Owner, req.Tenant = rights.OwnerFor(token, req.Owner), token.Tenant()
	req.MayExceed = token.Permits(s.operations["put-environment"])
	if !bodies.Accepts(r, wire.NDJSON) {
		return collectRun(w, r, service, req)
	}
	ctx, out := stream.Open(w, r, s.Stream, wire.NDJSON, stream.Line("\n"))
	defer out.Close()
	req.Stdout, req.Stderr = output(out, "stdout"), output(out, "stderr")
	req.Collected = output(out, wire.PartFiles)
	result, err := service.Run(ctx, req)
	wired := wire.RunResultOf(result)
	return endOutput(r, out, err, wire.RunOutput{Result: &wired},
		func(p *wire.Problem) any { return wire.RunOutput{Error: p} })
}

// collectRun sends the whole result of a run in one response.
func collectRun(w http.ResponseWriter, r *http.Request, service service.Service, req sandbox.RunRequest) error {
	var files bytes.Buffer
	req.Collected = &bounded{to: &files, left: maxCollected}
	result, err := service.Run(r.Context(), req)
	if err != nil {
		return err
	}
	wired := wire.RunResultOf(result)
	wired.Files = files.Bytes()
	bodies.WriteJSON(w, wired)
	return nil
}

// bounded is a writer with a limit in bytes.
type bounded struct {
	to   io.Writer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, sandbox.Errorf(sandbox.Invalid,
			"the run collects more than %s, the limit of a response without streaming: send Accept: %s",
			problem.Size(maxCollected), wire.NDJSON).
			WithReason(sandbox.ReasonResourceLimitExceeded)
	}
	return b.to.Write(p)
}

// readRun reads the request and prepares the parts after it.
func readRun(w http.ResponseWriter, r *http.Request) (runInput, error) {
	switch bodies.MediaType(r) {
	case wire.JSON:
		body, err := bodies.ReadAll(w, r.Body, bodies.MaxJSON)
		if err != nil {
			return runInput{}, err
		}
		return decodeRun(body)
	case formData:
		return readParts(w, r)
	default:
		return runInput{}, problem.HTTP(http.StatusUnsupportedMediaType,
			"the body must have Content-Type: application/json or "+formData)
	}
}

func readParts(w http.ResponseWriter, r *http.Request) (runInput, error) {
	if _, err := bodies.TakeOrStream(w, r, bodies.ShortInput); err != nil {
		return runInput{}, err
	}
	parts, err := r.MultipartReader()
	if err != nil {
		return runInput{}, problem.BadBody(err)
	}
	first, err := parts.NextPart()
	if err != nil || first.FormName() != wire.PartRun {
		return runInput{}, problem.BadBody(errors.Join(errors.New(`the first part must be "run"`), err))
	}
	body, err := bodies.ReadAll(w, first, bodies.MaxJSON)
	if err != nil {
		return runInput{}, err
	}
	req, err := decodeRun(body)
	if err != nil {
		return req, err
	}
	exchange.Of(r.Context()).Wait() // a person may type the rest
	next, err := parts.NextPart()
	switch {
	case errors.Is(err, io.EOF):
		return req, nil
	case err != nil:
		return req, problem.BadBody(err)
	case next.FormName() == wire.PartFiles:
		req.Files = next
		req.Stdin = &laterPart{parts: parts, given: req.Stdin}
	case next.FormName() == wire.PartStdin:
		req.Stdin = next
	default:
		return req, problem.BadBody(errors.New(`after "run" only the parts "files" and "stdin" may follow`))
	}
	return req, nil
}

// laterPart is the standard input of a run after its files: the next part, or the input in the request.
type laterPart struct {
	parts *multipart.Reader
	given io.Reader
	part  io.Reader
}

func (l *laterPart) Read(p []byte) (int, error) {
	if l.part == nil {
		next, err := l.parts.NextPart()
		switch {
		case errors.Is(err, io.EOF) && l.given != nil:
			l.part = l.given
		case err != nil:
			return 0, err
		case next.FormName() != wire.PartStdin:
			return 0, problem.BadBody(errors.New(`after "files" only the part "stdin" may follow`))
		default:
			l.part = next
		}
	}
	return l.part.Read(p)
}

func decodeRun(body []byte) (runInput, error) {
	var in wire.RunRequest
	if err := bodies.StrictJSON(body, &in); err != nil {
		return runInput{}, err
	}
	exec, err := execOf(in.ExecRequest, nil)
	return runInput{sandbox.RunRequest{
		EnvironmentID: in.EnvironmentID, AgentDID: in.AgentDID, Margin: in.Margin, Collect: in.Collect, ExecRequest: exec,
		Choice: sandbox.SandboxChoice{Image: in.Image, Resources: in.Resources, Network: in.Network},
	}}, err
}
