package api

import (
	"context"
	"io"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ProcessPath names a process of a lease in a path. It is exported for huma, as EnvironmentPath is.
type ProcessPath struct {
	LeaseRef
	Process string `path:"process" doc:"The process's name."`
}

func (p ProcessPath) process() sandbox.ProcessRef {
	return sandbox.ProcessRef{LeaseRef: p.ref(), Name: p.Process}
}

func (s *server) registerProcesses(d *document) {
	tags := []string{"leases"}
	add(d, huma.Operation{OperationID: "start-process", Method: http.MethodPost, Path: "/v1/leases/{id}/processes", Tags: tags,
		Summary: "Start a process that runs as long as a lease's sandbox does",
		Description: "It is not activity: the sandbox sleeps, and the lease ends, as if it were not there. " +
			"One that runs under the name with the same settings is answered as it is.", DefaultStatus: http.StatusAccepted}, startProcess)
	add(d, huma.Operation{OperationID: "list-processes", Method: http.MethodGet, Path: "/v1/leases/{id}/processes", Tags: tags,
		Summary: "List the processes of a lease's current generation, by name"}, listProcesses)
	add(d, huma.Operation{OperationID: "get-process", Method: http.MethodGet, Path: "/v1/leases/{id}/processes/{process}", Tags: tags,
		Summary: "Show a process as it stands"}, onProcess(service.Service.GetProcess))
	add(d, huma.Operation{OperationID: "kill-process", Method: http.MethodDelete, Path: "/v1/leases/{id}/processes/{process}", Tags: tags,
		Summary: "End a process and all it started, and wait until it has ended"}, onProcess(service.Service.KillProcess))
	add(d, huma.Operation{OperationID: "wait-process", Method: http.MethodPost, Path: "/v1/leases/{id}/processes/{process}/wait", Tags: tags,
		Summary:     "Wait for a line of a process's log, a port, or its end",
		Description: "The sandbox is kept awake meanwhile. After the timeout the answer is 504; 409 when the process ended before."}, waitProcess)
	addRaw(d, huma.Operation{OperationID: "read-process", Method: http.MethodGet, Path: "/v1/leases/{id}/processes/{process}/logs", Tags: tags,
		Summary: "Read the log of a process",
		Description: "Standard output and standard error of its latest start, as they came, of which the latest 8 MiB are kept. " + wire.HeaderLogOffset +
			" says which byte the answer begins with. With follow it goes on to the process's end; a reader whose connection breaks comes back with the offset that it has reached.",
		Responses: map[string]*huma.Response{"200": {
			Description: "The log.", Content: map[string]*huma.MediaType{wire.OctetStream: binary()},
			Headers: map[string]*huma.Param{wire.HeaderLogOffset: {Description: "The offset of the first byte.", Schema: &huma.Schema{Type: huma.TypeInteger}}},
		}}}, s.readProcess)
}

func startProcess(ctx context.Context, service service.Service, in *struct {
	LeaseRef
	Body sandbox.ProcessSpec
}) (*reply[sandbox.Process], error) {
	return replyWith(service.StartProcess(ctx, in.ref(), in.Body))
}

func listProcesses(ctx context.Context, service service.Service, in *struct {
	ID string `path:"id" doc:"The lease's id, <agent_did>::<environment_id>."`
}) (*reply[wire.ProcessPage], error) {
	list, err := service.ListProcesses(ctx, in.ID)
	return replyWith(wire.ProcessPage{Processes: notNil(list)}, err)
}

// onProcess makes a handler of a method that needs no more than a process.
func onProcess(method func(service.Service, context.Context, sandbox.ProcessRef) (sandbox.Process, error)) func(context.Context, service.Service, *ProcessPath) (*reply[sandbox.Process], error) {
	return func(ctx context.Context, service service.Service, in *ProcessPath) (*reply[sandbox.Process], error) {
		return replyWith(method(service, ctx, in.process()))
	}
}

func waitProcess(ctx context.Context, service service.Service, in *struct {
	ProcessPath
	Body wire.ProcessWait
}) (*reply[sandbox.ProcessWaited], error) {
	return replyWith(service.WaitProcess(ctx, sandbox.ProcessWait{ProcessRef: in.process(), Log: in.Body.Log, Port: in.Body.Port, Exit: in.Body.Exit, Timeout: in.Body.Timeout}))
}

type readProcessInput struct {
	ProcessPath
	Offset int64 `query:"offset" doc:"The first byte that is wanted. Default 0."`
	Follow bool  `query:"follow" doc:"Go on to the process's end."`
}

func (s *server) readProcess(w http.ResponseWriter, r *http.Request, service service.Service, in *readProcessInput) error {
	log, err := service.ReadProcess(r.Context(), sandbox.LogRequest{ProcessRef: in.process(), Offset: in.Offset, Follow: in.Follow})
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // it was read, or its reader has gone
	w.Header().Set(wire.HeaderLogOffset, strconv.FormatInt(log.Offset, 10))
	return s.sendOutput(w, r, log, in.Follow)
}

// sendOutput sends what a command or process writes, at once.
func (s *server) sendOutput(w http.ResponseWriter, r *http.Request, output io.Reader, follow bool) error {
	w.Header().Set("Content-Type", wire.OctetStream)
	w.Header().Set("Cache-Control", "no-store")
	live := &flushed{w: w, rc: http.NewResponseController(w), timeout: s.streamTimeout}
	if follow {
		live.flush() // it may be silent for long
	}
	if _, err := io.Copy(live, output); err != nil {
		if !live.began {
			return err
		}
		exchangeOf(r.Context()).cause = err
		panic(http.ErrAbortHandler) // the reader must see that the end is missing
	}
	return nil
}
