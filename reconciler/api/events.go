package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (s *server) registerEvents(d *document) {
	addRaw(d, huma.Operation{
		OperationID: "list-events", Method: http.MethodGet, Path: "/v1/events", Tags: []string{"reports"},
		Summary: "List or follow events",
		Description: "With Accept: " + wire.EventStream + " stored events and then new ones come as server-sent events; " +
			"a reader that comes back with Last-Event-ID misses none.",
		Responses: map[string]*huma.Response{"200": {
			Description: "Events in ascending order.",
			Content:     map[string]*huma.MediaType{wire.JSON: d.media(wire.EventPage{}), wire.EventStream: d.media(sandbox.Event{})},
		}},
	}, s.events)
}

type eventsInput struct {
	EnvironmentID string `query:"environment_id"`
	LeaseID       string `query:"lease_id"`
	SandboxID     string `query:"sandbox_id"`
	Type          string `query:"type" doc:"One type, such as egress.denied, or all that begin alike, such as egress.*"`
	FromSequence  int64  `query:"from_sequence" doc:"Replay one sandbox's events after this sequence, such as a lease's last_sequence; needs sandbox_id."`
	AfterID       int64  `query:"after_id" doc:"Go on after this event: next_after_id of the page before, or the last_event_id of a lease, environment or ledger. 410 event_sequence_expired when not all is retained after it."`
	Latest        bool   `query:"latest" doc:"The latest events first. They cannot be followed."`
	BeforeID      int64  `query:"before_id" doc:"With latest: those before this event, such as the last of the page before."`
	Limit         int    `query:"limit" doc:"Page size, 1 to 1000. Default 1000."`
	LastEventID   int64  `header:"Last-Event-ID" doc:"As after_id, and before it: what a reader that comes back sends."`
}

func (s *server) events(w http.ResponseWriter, r *http.Request, service service.Service, in *eventsInput) error {
	filter := sandbox.EventFilter{
		EnvironmentID: in.EnvironmentID, LeaseID: in.LeaseID, SandboxID: in.SandboxID, Type: in.Type,
		FromSequence: in.FromSequence, AfterID: cmp.Or(in.LastEventID, in.AfterID), Latest: in.Latest, BeforeID: in.BeforeID, Limit: in.Limit,
	}
	if accepts(r, wire.EventStream) {
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
	writeJSON(w, page)
	return nil
}

func (s *server) followEvents(w http.ResponseWriter, r *http.Request, service service.Service, filter sandbox.EventFilter) error {
	if filter.Latest {
		return service.FollowEvents(r.Context(), filter, nil) // which refuses it
	}
	probe := filter
	probe.Limit = 1
	if _, err := service.ListEvents(r.Context(), probe); err != nil { // a wrong filter gets its status
		return err
	}
	s.serveEvents(w, r, func(ctx context.Context, send func(id int64, kind string, v any) error) error {
		return service.FollowEvents(ctx, filter, func(e sandbox.Event) error {
			return send(e.ID, string(e.Type), e)
		})
	})
	return nil
}

// serveEvents answers with server-sent events until follow returns. Its error is the last event.
func (s *server) serveEvents(w http.ResponseWriter, r *http.Request, follow func(ctx context.Context, send func(id int64, kind string, v any) error) error) {
	ctx, out := s.openStream(w, r, wire.EventStream, ": idle\n\n")
	defer out.close()
	err := out.write([]byte(": following\n\n")) // the reader learns at once that it is connected
	if err == nil {
		err = follow(ctx, func(id int64, kind string, v any) error {
			data, err := json.Marshal(v)
			if err != nil {
				return err
			}
			return out.write(fmt.Appendf(nil, "id: %d\nevent: %s\ndata: %s\n\n", id, kind, data))
		})
	}
	failed := err != nil && ctx.Err() == nil // otherwise the reader has gone
	out.close()
	if failed {
		p := problemOf(err)
		exchangeOf(r.Context()).note(p)
		data, err := json.Marshal(p.Problem)
		if err != nil {
			panic(err) // strings and numbers always have a JSON form
		}
		_ = out.write(fmt.Appendf(nil, "event: error\ndata: %s\n\n", data)) // a reader that has gone needs no answer
	}
}
