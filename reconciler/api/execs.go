package api

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ExecPath names a command of a lease in a path. It is exported for huma, as EnvironmentPath is.
type ExecPath struct {
	ID   string `path:"id" doc:"The lease's id, <agent_did>::<environment_id>."`
	Exec string `path:"exec" doc:"The command's id."`
}

func (p ExecPath) ref() sandbox.ExecRef { return sandbox.ExecRef{LeaseID: p.ID, ID: p.Exec} }

func (s *server) registerExecs(d *document) {
	tags := []string{"leases"}
	add(d, huma.Operation{OperationID: "list-execs", Method: http.MethodGet, Path: "/v1/leases/{id}/execs", Tags: tags,
		Summary: "List the commands of a lease, the latest first"}, listExecs)
	add(d, huma.Operation{OperationID: "get-exec", Method: http.MethodGet, Path: "/v1/leases/{id}/execs/{exec}", Tags: tags,
		Summary: "Show a command as it stands"}, onExec(service.Service.GetExec))
	add(d, huma.Operation{OperationID: "cancel-exec", Method: http.MethodPost, Path: "/v1/leases/{id}/execs/{exec}/cancel", Tags: tags,
		Summary: "End a command and all it started, and wait until it has ended"}, onExec(service.Service.CancelExec))
	addRaw(d, huma.Operation{OperationID: "read-exec", Method: http.MethodGet, Path: "/v1/leases/{id}/execs/{exec}/{stream}", Tags: tags,
		Summary: "Read what a command wrote",
		Description: "While it runs and as long as it is kept, from any replica; 410 (output_expired) once newer output took its room. With follow the answer goes on to the command's end; " +
			"a reader whose connection breaks comes back with the offset that it has reached.",
		Responses: map[string]*huma.Response{"200": {
			Description: "What it wrote.", Content: map[string]*huma.MediaType{wire.OctetStream: binary()},
		}}}, s.readExecOutput)
}

func listExecs(ctx context.Context, service service.Service, in *struct {
	ID     string            `path:"id" doc:"The lease's id, <agent_did>::<environment_id>."`
	State  sandbox.ExecState `query:"state" doc:"running, finished, failed or cancelled."`
	Before string            `query:"before" doc:"next_before of the page before."`
	Limit  int               `query:"limit" doc:"Page size, 1 to 1000. Default 1000."`
}) (*reply[wire.ExecPage], error) {
	execs, err := service.ListExecs(ctx, sandbox.ExecFilter{LeaseID: in.ID, State: in.State, Before: in.Before, Limit: in.Limit})
	page := wire.ExecPage{Execs: notNil(execs)}
	if full(len(execs), in.Limit) {
		page.NextBefore = execs[len(execs)-1].ID
	}
	return replyWith(page, err)
}

// onExec makes a handler of a method that needs no more than a command.
func onExec(method func(service.Service, context.Context, sandbox.ExecRef) (sandbox.Exec, error)) func(context.Context, service.Service, *ExecPath) (*reply[sandbox.Exec], error) {
	return func(ctx context.Context, service service.Service, in *ExecPath) (*reply[sandbox.Exec], error) {
		return replyWith(method(service, ctx, in.ref()))
	}
}

type readExecInput struct {
	ExecPath
	Stream sandbox.ExecStream `path:"stream" doc:"stdout or stderr."`
	Offset int64              `query:"offset" doc:"The first byte that is wanted. Default 0."`
	Follow bool               `query:"follow" doc:"Go on to the command's end."`
}

func (s *server) readExecOutput(w http.ResponseWriter, r *http.Request, service service.Service, in *readExecInput) error {
	output, err := service.ReadExec(r.Context(), sandbox.OutputRequest{ExecRef: in.ref(), Stream: in.Stream, Offset: in.Offset, Follow: in.Follow})
	if err != nil {
		return err
	}
	defer func() { _ = output.Close() }() // it was read, or its reader has gone
	return s.sendOutput(w, r, output, in.Follow)
}

// flushed sends what is written at once, and cuts off who does not read.
type flushed struct {
	w       io.Writer
	rc      *http.ResponseController
	timeout time.Duration
	began   bool
}

func (f *flushed) Write(p []byte) (int, error) {
	_ = f.rc.SetWriteDeadline(time.Now().Add(f.timeout)) // only connections have deadlines, a recorder has none
	f.began = true
	n, err := f.w.Write(p)
	if err == nil {
		f.flush()
	}
	return n, err
}

func (f *flushed) flush() {
	f.began = true
	_ = f.rc.Flush() // a writer that cannot sends it at the end
}
