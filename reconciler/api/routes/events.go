package routes

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync/atomic"

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

func (s *Routes) registerEvents(d *document.Document) {
	document.AddRaw(d, sandbox.ScopeRead, huma.Operation{
		OperationID: "list-events", Method: http.MethodGet, Path: "/v1/events", Tags: []string{"reports"},
		Summary: "List or follow events",
		Description: "With Accept: " + wire.EventStream + ", the response is a stream of server-sent events: " +
			"first the stored events, then new ones. A client that reconnects with Last-Event-ID misses no event.",
		Responses: map[string]*huma.Response{"200": {
			Description: "Events in ascending order.",
			Content: map[string]*huma.MediaType{
				wire.JSON:        d.Media(wire.EventPage{}),
				wire.EventStream: d.Media(sandbox.Event{}),
			},
		}},
	}, s.events)
}

type eventsInput struct {
	EnvironmentID string                `query:"environment_id"`
	LeaseID       string                `query:"lease_id"`
	SandboxID     string                `query:"sandbox_id"`
	Type          string                `query:"type" doc:"A type, such as egress.denied, or the start of some, such as egress.*"`
	Labels        sandbox.LabelSelector `query:"labels" doc:"Only with these labels: key=value or key, separated by commas."`
	FromSequence  int64                 `query:"from_sequence" doc:"Only events after this sequence of the sandbox, such as a lease's last_sequence; needs sandbox_id."`
	AfterID       int64                 `query:"after_id" doc:"Only events after this one: next_after_id of the previous page, or the last_event_id of a lease, environment or ledger. 410 event_sequence_expired if an event after it was already purged."`
	Latest        bool                  `query:"latest" doc:"Latest events first. Cannot be followed."`
	BeforeID      int64                 `query:"before_id" doc:"With latest: only events before this one, such as the last of the previous page."`
	Limit         int                   `query:"limit" doc:"Page size, 1 to 1000. Default 1000." minimum:"1" maximum:"1000"`
	LastEventID   int64                 `header:"Last-Event-ID" doc:"Overrides after_id. Sent by a client that reconnects."`
}

// Touches returns the target of the request.
func (in eventsInput) Touches() rights.Target { return rights.ReportOn(in.EnvironmentID, in.LeaseID) }

func (s *Routes) events(w http.ResponseWriter, r *http.Request, service service.Service, in *eventsInput) error {
	filter := sandbox.EventFilter{
		EnvironmentID: in.EnvironmentID,
		LeaseID:       in.LeaseID,
		SandboxID:     in.SandboxID,
		Type:          in.Type,
		Labels:        in.Labels,
		FromSequence:  in.FromSequence,
		AfterID:       cmp.Or(in.LastEventID, in.AfterID),
		Latest:        in.Latest,
		BeforeID:      in.BeforeID,
		Limit:         in.Limit,
	}
	if bodies.Accepts(r, wire.EventStream) {
		return s.followEvents(w, r, service, filter)
	}
	events, err := service.ListEvents(r.Context(), filter)
	if err != nil {
		return err
	}
	page := wire.EventPage{Events: notNil(events)}
	if full(len(events), in.Limit) && !in.Latest {
		page.NextAfterID = events[len(events)-1].ID
	}
	bodies.WriteJSON(w, page)
	return nil
}

func (s *Routes) followEvents(w http.ResponseWriter, r *http.Request, service service.Service,
	filter sandbox.EventFilter) error {
	if filter.Latest {
		return service.FollowEvents(r.Context(), filter, nil) // returns the error
	}
	probe := filter
	probe.Limit = 1
	if _, err := service.ListEvents(r.Context(), probe); err != nil { // so that an invalid filter gets its status
		return err
	}
	filter.Reached = &atomic.Int64{}
	s.serveEvents(w, r, filter.Reached, func(ctx context.Context, send sendEvent) error {
		return service.FollowEvents(ctx, filter, func(e sandbox.Event) error {
			return send(e.ID, string(e.Type), e)
		})
	})
	return nil
}

// sendEvent sends one server-sent event.
type sendEvent func(id int64, kind string, v any) error

// serveEvents sends server-sent events until follow returns. The last event holds the error of follow. follow may
// set reached to the id up to which it has sent all events. Idle lines carry it, so that a client whose filter omits
// most events can continue after it.
func (s *Routes) serveEvents(w http.ResponseWriter, r *http.Request, reached *atomic.Int64,
	follow func(ctx context.Context, send sendEvent) error) {
	var sent atomic.Int64 // the id of the latest event
	ctx, out := stream.Open(w, r, s.Stream, wire.EventStream, func() []byte {
		if last := reached.Load(); last > sent.Load() {
			return fmt.Appendf(nil, ": idle\nid: %d\n\n", last)
		}
		return []byte(": idle\n\n")
	})
	defer out.Close()
	err := out.Send([]byte(": following\n\n")) // tells the client at once that it is connected
	if err == nil {
		err = follow(ctx, func(id int64, kind string, v any) error {
			data, err := json.Marshal(v)
			if err != nil {
				return err
			}
			sent.Store(id)
			return out.Send(fmt.Appendf(nil, "id: %d\nevent: %s\ndata: %s\n\n", id, kind, data))
		})
	}
	failed := err != nil && ctx.Err() == nil // otherwise the client has disconnected
	out.Close()
	if failed {
		p := problem.Of(err)
		exchange.Of(r.Context()).Note(p)
		data, err := json.Marshal(p.Problem)
		if err != nil {
			panic(err) // strings and numbers always marshal
		}
		_ = out.Send(fmt.Appendf(nil, "event: error\ndata: %s\n\n", data)) // the client may have disconnected
	}
}
