package routes

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/document"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/rights"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ExecPath names a command of a lease in a path. Exported for huma, see EnvironmentPath.
type ExecPath struct {
	ID   string `path:"id" doc:"The lease's id, <agent_did>::<environment_id>."`
	Exec string `path:"exec" doc:"The command's id."`
}

// Touches returns the target of the request.
func (p ExecPath) Touches() rights.Target { return rights.Lease(p.ID) }

func (p ExecPath) ref() sandbox.ExecRef { return sandbox.ExecRef{LeaseID: p.ID, ID: p.Exec} }

func (s *Routes) registerExecs(d *document.Document) {
	tags := []string{"leases"}
	document.Add(d, sandbox.ScopeRead, huma.Operation{OperationID: "list-execs", Method: http.MethodGet,
		Path: "/v1/leases/{id}/execs", Tags: tags,
		Summary: "List the commands of a lease, latest first"}, listExecs)
	document.Add(d, sandbox.ScopeRead, huma.Operation{OperationID: "get-exec", Method: http.MethodGet,
		Path: "/v1/leases/{id}/execs/{exec}", Tags: tags,
		Summary: "Show a command"}, onExec(service.Service.GetExec))
	document.Add(d, sandbox.ScopeLease, huma.Operation{OperationID: "cancel-exec", Method: http.MethodPost,
		Path: "/v1/leases/{id}/execs/{exec}/cancel", Tags: tags,
		Summary: "Kill a command and its processes, and wait for their exit"}, onExec(service.Service.CancelExec))
	document.AddRaw(d, sandbox.ScopeRead, huma.Operation{OperationID: "read-exec", Method: http.MethodGet,
		Path: "/v1/leases/{id}/execs/{exec}/{stream}", Tags: tags,
		Summary: "Read the output of a command",
		Description: "Works while the command runs and as long as its output is kept, on every replica. 410 " +
			"(output_expired) once newer output replaced it. With follow, the response ends when the command ends. A client " +
			"whose connection breaks continues with the offset that it has reached.",
		Responses: map[string]*huma.Response{"200": {
			Description: "The output.", Content: map[string]*huma.MediaType{wire.OctetStream: document.Binary()},
		}}}, s.readExecOutput)
}

func listExecs(ctx context.Context, service service.Service, in *struct {
	LeasePath
	State  sandbox.ExecState `query:"state" doc:"running, finished, failed or cancelled."`
	Before string            `query:"before" doc:"next_before of the previous page."`
	Limit  int               `query:"limit" doc:"Page size, 1 to 1000. Default 1000." minimum:"1" maximum:"1000"`
}) (*reply[wire.ExecPage], error) {
	execs, err := service.ListExecs(ctx,
		sandbox.ExecFilter{LeaseID: in.ID, State: in.State, Before: in.Before, Limit: in.Limit})
	page := wire.ExecPage{Execs: notNil(execs)}
	if full(len(execs), in.Limit) {
		page.NextBefore = execs[len(execs)-1].ID
	}
	return replyWith(page, err)
}

// onExec returns a handler for a method that takes only a command.
func onExec(
	method func(service.Service, context.Context, sandbox.ExecRef) (sandbox.Exec, error),
) func(context.Context, service.Service, *ExecPath) (*reply[sandbox.Exec], error) {
	return func(ctx context.Context, service service.Service, in *ExecPath) (*reply[sandbox.Exec], error) {
		return replyWith(method(service, ctx, in.ref()))
	}
}

type readExecInput struct {
	ExecPath
	Stream sandbox.ExecStream `path:"stream" doc:"stdout or stderr."`
	Offset int64              `query:"offset" doc:"The first byte to read. Default 0."`
	Follow bool               `query:"follow" doc:"Keep reading until the command ends."`
}

func (s *Routes) readExecOutput(w http.ResponseWriter, r *http.Request, service service.Service,
	in *readExecInput) error {
	ctx, cancel := readContext(r, in.Follow)
	defer cancel()
	output, err := service.ReadExec(ctx,
		sandbox.OutputRequest{ExecRef: in.ref(), Stream: in.Stream, Offset: in.Offset, Follow: in.Follow})
	if err != nil {
		return err
	}
	defer func() { _ = output.Close() }() // only read
	return s.sendOutput(w, r, output, in.Follow)
}
