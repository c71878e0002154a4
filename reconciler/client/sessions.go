package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// CreateSession implements service.Sessions. With an ID, it retries after a lost response.
func (c *Client) CreateSession(ctx context.Context, r sandbox.LeaseRef,
	s sandbox.CreateSession) (out sandbox.Session, err error) {
	path, err := leasePath(r.ID)
	if err != nil {
		return out, err
	}
	body := wire.CreateSession{ID: s.ID, Env: s.Env, Cwd: s.Cwd, User: s.User}
	return out, c.call(ctx,
		request{method: http.MethodPost, path: path + "/sessions" + fence(r), body: body, once: s.ID == ""}, &out)
}

// GetSession implements service.Sessions.
func (c *Client) GetSession(ctx context.Context, r sandbox.SessionRef) (s sandbox.Session, err error) {
	path, err := sessionPath(r)
	if err != nil {
		return s, err
	}
	return s, c.call(ctx, request{method: http.MethodGet, path: path + query("generation", number(r.Generation))}, &s)
}

// ListSessions implements service.Sessions.
func (c *Client) ListSessions(ctx context.Context, f sandbox.SessionFilter) ([]sandbox.Session, error) {
	path, err := leasePath(f.LeaseID)
	if err != nil {
		return nil, err
	}
	var page wire.SessionPage
	err = c.call(ctx,
		request{method: http.MethodGet, path: path + "/sessions" + query("state", string(f.State), "limit", number(f.Limit))},
		&page)
	return page.Sessions, err
}

// CloseSession implements service.Sessions.
func (c *Client) CloseSession(ctx context.Context, r sandbox.SessionRef) (s sandbox.Session, err error) {
	path, err := sessionPath(r)
	if err != nil {
		return s, err
	}
	return s, c.call(ctx,
		request{method: http.MethodDelete, path: path + query("generation", number(r.Generation)), slow: true}, &s)
}

// ListSessionEvents implements service.Sessions.
func (c *Client) ListSessionEvents(ctx context.Context, f sandbox.SessionEventFilter) ([]sandbox.SessionEvent, error) {
	path, err := sessionEventsPath(f)
	if err != nil {
		return nil, err
	}
	var page wire.SessionEventPage
	if err := c.call(ctx, request{method: http.MethodGet, path: path}, &page); err != nil {
		return nil, err
	}
	events := make([]sandbox.SessionEvent, len(page.Events))
	for i, e := range page.Events {
		if events[i], err = e.SessionEvent(); err != nil {
			return nil, c.lost(http.MethodGet, path, true, err)
		}
	}
	return events, nil
}

// FollowSessionEvents implements service.Sessions. It reconnects after a lost connection without missing events, and
// fails after several attempts in a row without an event.
func (c *Client) FollowSessionEvents(ctx context.Context, f sandbox.SessionEventFilter,
	yield func(sandbox.SessionEvent) error) error {
	f.Limit = 0
	return c.followAgain(ctx, func() int64 { return f.After }, func() (bool, error) {
		path, err := sessionEventsPath(f)
		if err != nil {
			return false, err
		}
		passed := func(int64) {} // every event has its sequence
		return c.readEvents(ctx, path, passed, func(kind, data string) (bool, error) {
			if kind == wire.SessionClosed {
				return false, nil
			}
			var in wire.SessionEvent
			err := json.Unmarshal([]byte(data), &in)
			var e sandbox.SessionEvent
			if err == nil {
				e, err = in.SessionEvent()
			}
			if err != nil {
				return false, sandbox.Errorf(sandbox.Internal, "reconciler %s: event %q: %w", c.name, data, err)
			}
			if err := yield(e); err != nil {
				return false, err
			}
			f.After = e.Sequence
			return true, nil
		})
	})
}

// sessionPath returns NotFound for ids that a path cannot hold. No session has such an id.
func sessionPath(r sandbox.SessionRef) (string, error) {
	path, err := leasePath(r.LeaseID)
	if err != nil {
		return "", err
	}
	if r.ID == "" || r.ID == "." || r.ID == ".." {
		return "", sandbox.Errorf(sandbox.NotFound, "lease %s has no session %q", r.LeaseID, r.ID).
			WithReason(sandbox.ReasonSessionNotFound)
	}
	return path + "/sessions/" + url.PathEscape(r.ID), nil
}

func sessionEventsPath(f sandbox.SessionEventFilter) (string, error) {
	path, err := sessionPath(f.SessionRef)
	return path + "/events" +
		query("after", number(f.After), "limit", number(f.Limit), "generation", number(f.Generation)), err
}
