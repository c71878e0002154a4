package routes

import (
	"cmp"
	"context"
	"net/http"
	"sync/atomic"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/bodies"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/document"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api/rights"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// SessionPath names a session of a lease in a path. Exported for huma, see EnvironmentPath.
type SessionPath struct {
	ID         string `path:"id" doc:"The lease's id, <agent_did>::<environment_id>."`
	Session    string `path:"session" doc:"The session's id."`
	Generation int64  `query:"generation" doc:"The lease's generation. Default: the latest one with a session of this id."`
}

// Touches returns the target of the request.
func (p SessionPath) Touches() rights.Target { return rights.Lease(p.ID) }

func (p SessionPath) ref() sandbox.SessionRef {
	return sandbox.SessionRef{LeaseID: p.ID, Generation: p.Generation, ID: p.Session}
}

func (s *Routes) registerSessions(d *document.Document) {
	tags := []string{"sessions"}
	const path = "/v1/leases/{id}/sessions"
	document.Add(d, sandbox.ScopeLease, huma.Operation{OperationID: "create-session", Method: http.MethodPost,
		Path: path, Tags: tags, DefaultStatus: http.StatusCreated,
		Responses: map[string]*huma.Response{
			"200": d.Content("The request repeats an earlier one: the session is open already.", wire.JSON, sandbox.Session{}),
		},
		Summary: "Open a session in a lease's sandbox",
		Description: "Commands run in a session one after another, with its variables and directory, and are recorded. " +
			"A session has no process of its own: it survives sleep and restarts, and closes with its sandbox. " +
			"A repeated request with the same id returns the same session (200) while it is open, and 409 session_closed " +
			"after that."}, createSession)
	document.Add(d, sandbox.ScopeRead, huma.Operation{OperationID: "list-sessions", Method: http.MethodGet,
		Path: path, Tags: tags,
		Summary: "List the sessions of a lease, latest first"}, listSessions)
	document.Add(d, sandbox.ScopeRead, huma.Operation{OperationID: "get-session", Method: http.MethodGet,
		Path: path + "/{session}", Tags: tags,
		Summary: "Show a session"}, onSession(service.Service.GetSession))
	document.Add(d, sandbox.ScopeLease, huma.Operation{OperationID: "close-session", Method: http.MethodDelete,
		Path: path + "/{session}", Tags: tags, DefaultStatus: http.StatusOK,
		Summary: "Close a session and cancel its running command; the recording stays"},
		onSession(service.Service.CloseSession))
	document.AddRaw(d, sandbox.ScopeLease, execOperation(d, huma.Operation{OperationID: "exec-in-session",
		Method: http.MethodPost,
		Path:   path + "/{session}/exec", Tags: tags,
		Summary: "Run a command in a session",
		Description: "One command at a time: 409 session_busy names the running one. Variables and directory default to " +
			"those of the session. "}), s.execInSession)
	document.AddRaw(d, sandbox.ScopeRead, huma.Operation{OperationID: "list-session-events", Method: http.MethodGet,
		Path: path + "/{session}/events", Tags: tags,
		Summary: "Replay or follow the recording of a session",
		Description: "With Accept: " + wire.EventStream +
			", the response is a stream of server-sent events: first the stored events, then new ones. A client that " +
			"reconnects with Last-Event-ID misses no event. The last event, closed, comes once the session is closed and idle.",
		Responses: map[string]*huma.Response{"200": {
			Description: "Events in ascending order.",
			Content: map[string]*huma.MediaType{
				wire.JSON:        d.Media(wire.SessionEventPage{}),
				wire.EventStream: d.Media(wire.SessionEvent{}),
			},
		}}}, s.sessionEvents)
}

func createSession(ctx context.Context, service service.Service, in *struct {
	LeaseRef
	Body wire.CreateSession
}) (*opened, error) {
	b := in.Body
	session, err := service.CreateSession(ctx, in.ref(),
		sandbox.CreateSession{ID: b.ID, Env: b.Env, Cwd: b.Cwd, User: b.User})
	if err != nil {
		return nil, err
	}
	out := &opened{Status: http.StatusOK, Body: session}
	if session.IsNew {
		out.Status = http.StatusCreated
	}
	return out, nil
}

// opened is the response of create-session: 200 for a repeated request.
type opened struct {
	Status int
	Body   sandbox.Session
}

func listSessions(ctx context.Context, service service.Service, in *struct {
	LeasePath
	State sandbox.SessionState `query:"state" doc:"open or closed."`
	Limit int                  `query:"limit" doc:"Page size, 1 to 1000. Default 1000." minimum:"1" maximum:"1000"`
}) (*reply[wire.SessionPage], error) {
	sessions, err := service.ListSessions(ctx, sandbox.SessionFilter{LeaseID: in.ID, State: in.State, Limit: in.Limit})
	return replyWith(wire.SessionPage{Sessions: notNil(sessions)}, err)
}

// onSession returns a handler for a method that takes only a session.
func onSession(
	method func(service.Service, context.Context, sandbox.SessionRef) (sandbox.Session, error),
) func(context.Context, service.Service, *SessionPath) (*reply[sandbox.Session], error) {
	return func(ctx context.Context, service service.Service, in *SessionPath) (*reply[sandbox.Session], error) {
		return replyWith(method(service, ctx, in.ref()))
	}
}

type execInSessionInput struct {
	LeaseRef
	Session string `path:"session" doc:"The session's id."`
}

func (s *Routes) execInSession(w http.ResponseWriter, r *http.Request, service service.Service,
	in *execInSessionInput) error {
	return s.exec(w, r, service, in.ref(), in.Session)
}

type sessionEventsInput struct {
	SessionPath
	After       int64 `query:"after" doc:"Only events after this sequence. Default 0: from the start."`
	Limit       int   `query:"limit" doc:"Page size, 1 to 256. Default 256." minimum:"1" maximum:"256"`
	LastEventID int64 `header:"Last-Event-ID" doc:"Overrides after. Sent by a client that reconnects."`
}

func (s *Routes) sessionEvents(w http.ResponseWriter, r *http.Request, service service.Service,
	in *sessionEventsInput) error {
	filter := sandbox.SessionEventFilter{SessionRef: in.ref(), After: cmp.Or(in.LastEventID, in.After), Limit: in.Limit}
	if bodies.Accepts(r, wire.EventStream) {
		return s.followSession(w, r, service, filter)
	}
	events, err := service.ListSessionEvents(r.Context(), filter)
	if err != nil {
		return err
	}
	page := wire.SessionEventPage{Events: []wire.SessionEvent{}}
	for _, e := range events {
		page.Events = append(page.Events, wire.SessionEventOf(e))
	}
	if full(len(events), cmp.Or(in.Limit, sandbox.MaxSessionPage)) {
		page.NextAfter = events[len(events)-1].Sequence
	}
	bodies.WriteJSON(w, page)
	return nil
}

func (s *Routes) followSession(w http.ResponseWriter, r *http.Request, service service.Service,
	filter sandbox.SessionEventFilter) error {
	probe := filter
	probe.Limit = 1
	if _, err := service.ListSessionEvents(r.Context(), probe); err != nil { // so that an invalid filter gets its status
		return err
	}
	s.serveEvents(w, r, &atomic.Int64{}, func(ctx context.Context, send sendEvent) error {
		last := filter.After
		err := service.FollowSessionEvents(ctx, filter, func(e sandbox.SessionEvent) error {
			last = e.Sequence
			return send(e.Sequence, "message", wire.SessionEventOf(e)) // its own types include error
		})
		if err != nil {
			return err
		}
		return send(last, wire.SessionClosed, struct{}{})
	})
	return nil
}
