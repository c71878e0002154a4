package routes

import (
	"context"
	"io"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/document"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/exchange"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/stream"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ProcessPath names a process of a lease in a path. Exported for huma, see EnvironmentPath.
type ProcessPath struct {
	LeaseRef
	Process string `path:"process" doc:"The process's name."`
}

func (p ProcessPath) process() sandbox.ProcessRef {
	return sandbox.ProcessRef{LeaseRef: p.ref(), Name: p.Process}
}

func (s *Routes) registerProcesses(d *document.Document) {
	tags := []string{"leases"}
	document.Add(d, sandbox.ScopeLease, huma.Operation{
		OperationID: "start-process",
		Method:      http.MethodPost,
		Path:        "/v1/leases/{id}/processes",
		Tags:        tags,
		Summary:     "Start a background process in a lease's sandbox",
		Description: "The process runs as long as the sandbox does. It does not count as activity: the sandbox still " +
			"sleeps and the lease still ends. Idempotent: a running process of the same name and settings is returned.",
		DefaultStatus: http.StatusAccepted,
	}, startProcess)
	document.Add(d, sandbox.ScopeRead, huma.Operation{OperationID: "list-processes", Method: http.MethodGet,
		Path: "/v1/leases/{id}/processes", Tags: tags,
		Summary: "List the processes of a lease's current generation, by name"}, listProcesses)
	document.Add(d, sandbox.ScopeRead, huma.Operation{OperationID: "get-process", Method: http.MethodGet,
		Path: "/v1/leases/{id}/processes/{process}", Tags: tags,
		Summary: "Show a process"}, onProcess(service.Service.GetProcess))
	document.Add(d, sandbox.ScopeLease, huma.Operation{OperationID: "kill-process", Method: http.MethodDelete,
		Path: "/v1/leases/{id}/processes/{process}", Tags: tags,
		Summary: "Kill a process and its descendants, and wait for their exit"}, onProcess(service.Service.KillProcess))
	document.Add(d, sandbox.ScopeLease, huma.Operation{OperationID: "wait-process", Method: http.MethodPost,
		Path: "/v1/leases/{id}/processes/{process}/wait", Tags: tags,
		Summary: "Wait for a log line, an open port or the exit of a process",
		Description: "The sandbox stays awake during the wait. 504 after the timeout; 409 if the " +
			"process exits first."}, waitProcess)
	document.AddRaw(d, sandbox.ScopeLease, huma.Operation{OperationID: "read-process", Method: http.MethodGet,
		Path: "/v1/leases/{id}/processes/{process}/logs", Tags: tags,
		Summary: "Read the log of a process",
		Description: "The interleaved standard output and standard error since the latest start, at most the last " +
			"8 MiB. " + wire.HeaderLogOffset + " is the offset of the first byte. With follow, the response ends when the " +
			"process exits. A client whose connection breaks continues with the offset that it has reached.",
		Responses: logResponse()}, s.readProcess)
	document.AddRaw(d, sandbox.ScopeLease, huma.Operation{OperationID: "read-companion", Method: http.MethodGet,
		Path: "/v1/leases/{id}/companions/{companion}/logs", Tags: tags,
		Summary: "Read the log of a companion",
		Description: "The interleaved standard output and standard error of its program since the latest start, at most " +
			"the last 8 MiB. " + wire.HeaderLogOffset + " is the offset of the first byte. With follow, the response ends " +
			"when the program does. Once the program has ended, only the last 4 KiB are kept, and their offset is 0.",
		Responses: logResponse()}, s.readCompanion)
}

// logResponse describes a log in the document.
func logResponse() map[string]*huma.Response {
	return map[string]*huma.Response{"200": {
		Description: "The log.", Content: map[string]*huma.MediaType{wire.OctetStream: document.Binary()},
		Headers: map[string]*huma.Param{
			wire.HeaderLogOffset: {Description: "The offset of the first byte.", Schema: &huma.Schema{Type: huma.TypeInteger}},
		},
	}}
}

func startProcess(ctx context.Context, service service.Service, in *struct {
	LeaseRef
	Body sandbox.ProcessSpec
}) (*reply[sandbox.Process], error) {
	return replyWith(service.StartProcess(ctx, in.ref(), in.Body))
}

func listProcesses(ctx context.Context, service service.Service, in *LeasePath) (*reply[wire.ProcessPage], error) {
	list, err := service.ListProcesses(ctx, in.ID)
	return replyWith(wire.ProcessPage{Processes: notNil(list)}, err)
}

// onProcess returns a handler for a method that takes only a process.
func onProcess(
	method func(service.Service, context.Context, sandbox.ProcessRef) (sandbox.Process, error),
) func(context.Context, service.Service, *ProcessPath) (*reply[sandbox.Process], error) {
	return func(ctx context.Context, service service.Service, in *ProcessPath) (*reply[sandbox.Process], error) {
		return replyWith(method(service, ctx, in.process()))
	}
}

func waitProcess(ctx context.Context, service service.Service, in *struct {
	ProcessPath
	Body wire.ProcessWait
}) (*reply[sandbox.ProcessWaited], error) {
	return replyWith(service.WaitProcess(ctx, sandbox.ProcessWait{
		ProcessRef: in.process(),
		Log:        in.Body.Log,
		Port:       in.Body.Port,
		Exit:       in.Body.Exit,
		Timeout:    in.Body.Timeout,
	}))
}

type readProcessInput struct {
	ProcessPath
	Offset int64 `query:"offset" doc:"The first byte to read. Default 0."`
	Follow bool  `query:"follow" doc:"Keep reading until the process exits."`
}

func (s *Routes) readProcess(w http.ResponseWriter, r *http.Request, service service.Service,
	in *readProcessInput) error {
	ctx, cancel := readContext(r, in.Follow)
	defer cancel()
	log, err := service.ReadProcess(ctx,
		sandbox.LogRequest{ProcessRef: in.process(), Offset: in.Offset, Follow: in.Follow})
	if err != nil {
		return err
	}
	return s.sendLog(w, r, log, in.Follow)
}

type readCompanionInput struct {
	LeaseRef
	Companion string `path:"companion" doc:"The companion's name."`
	Offset    int64  `query:"offset" doc:"The first byte to read. Default 0."`
	Follow    bool   `query:"follow" doc:"Keep reading until the program ends."`
}

func (s *Routes) readCompanion(w http.ResponseWriter, r *http.Request, service service.Service,
	in *readCompanionInput) error {
	ctx, cancel := readContext(r, in.Follow)
	defer cancel()
	log, err := service.ReadCompanion(ctx, sandbox.CompanionLogRequest{LeaseRef: in.ref(), Name: in.Companion,
		Offset: in.Offset, Follow: in.Follow})
	if err != nil {
		return err
	}
	return s.sendLog(w, r, log, in.Follow)
}

// readContext returns the context of a read of output. A read that follows is a stream.
func readContext(r *http.Request, follow bool) (context.Context, context.CancelFunc) {
	if follow {
		return stream.Context(r)
	}
	return context.WithCancel(r.Context())
}

// sendLog sends a log, and closes it.
func (s *Routes) sendLog(w http.ResponseWriter, r *http.Request, log sandbox.ProcessLog, follow bool) error {
	defer func() { _ = log.Close() }() // only read
	w.Header().Set(wire.HeaderLogOffset, strconv.FormatInt(log.Offset, 10))
	return s.sendOutput(w, r, log, follow)
}

// sendOutput sends the output of a command or process without buffering.
func (s *Routes) sendOutput(w http.ResponseWriter, r *http.Request, output io.Reader, follow bool) error {
	w.Header().Set("Content-Type", wire.OctetStream)
	w.Header().Set("Cache-Control", "no-store")
	live := stream.NewFlushed(w, s.Stream.Timeout)
	defer live.Extend()
	if follow {
		live.Flush() // it may be silent for a long time
	}
	if _, err := io.Copy(live, output); err != nil {
		if !live.Began() {
			return err
		}
		exchange.Of(r.Context()).Cause = err
		panic(http.ErrAbortHandler) // the client must see that the response is incomplete
	}
	return nil
}
