package routes

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/document"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (s *Routes) registerWorkspaces(d *document.Document) {
	for form, is := range map[sandbox.WorkspaceForm]struct{ summary, description, result string }{
		sandbox.WorkspaceBundle: {"Read the commits of a lease's workspace as a Git bundle",
			"The commits of the lease's branch since the lease began. 409 if there are none.", "The bundle, of version 2."},
		sandbox.WorkspaceDiff: {"Read the changes of a lease's workspace as a diff",
			"The difference between the commit that the lease began with and the last one of its branch. Changes that are not " +
				"committed are not in it. A file of more than 1 MiB or 10,000 lines is only named.",
			"The diff, in the unified format."},
	} {
		document.AddRaw(d, sandbox.ScopeLease, huma.Operation{
			OperationID: "read-workspace-" + string(form), Method: http.MethodGet,
			Path: "/v1/leases/{id}/workspace/" + string(form), Tags: []string{"files"},
			Summary: is.summary,
			Description: is.description + " The repository in the sandbox is read as data, and every object is checked. What " +
				"it says is the sandbox's claim.",
			Responses: map[string]*huma.Response{"200": {Description: is.result,
				Content: map[string]*huma.MediaType{wire.OctetStream: document.Binary()}}},
		}, func(w http.ResponseWriter, r *http.Request, service service.Service, in *LeaseRef) error {
			return s.readWorkspace(w, r, service, in, form)
		})
	}
	document.Add(d, sandbox.ScopeLease, huma.Operation{OperationID: "push-workspace", Method: http.MethodPost,
		Path: "/v1/leases/{id}/workspace/push", Tags: []string{"files"},
		Summary: "Push the branch of a lease's workspace to its repository",
		Description: "The service pushes, with the credential of the environment, under push_prefix. It creates the branch " +
			"or moves it forward, and never overwrites commits. Pushing again changes nothing."}, pushWorkspace)
}

func pushWorkspace(ctx context.Context, service service.Service,
	in *LeaseRef) (*reply[sandbox.WorkspacePushed], error) {
	pushed, err := service.PushWorkspace(ctx, in.ref())
	return replyWith(pushed, err)
}

func (s *Routes) readWorkspace(w http.ResponseWriter, r *http.Request, service service.Service, in *LeaseRef,
	form sandbox.WorkspaceForm) error {
	content, err := service.CollectWorkspace(r.Context(), in.ref(), form)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }() // only read
	w.Header().Set("Content-Type", wire.OctetStream)
	s.send(w, r, content)
	return nil
}
