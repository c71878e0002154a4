package api

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func (s scoped) CreateSession(ctx context.Context, r sandbox.LeaseRef, c sandbox.CreateSession) (sandbox.Session, error) {
	if err := s.lease(ctx, r.ID); err != nil {
		return sandbox.Session{}, err
	}
	return s.service.CreateSession(ctx, r, c)
}

func (s scoped) GetSession(ctx context.Context, r sandbox.SessionRef) (sandbox.Session, error) {
	if err := s.lease(ctx, r.LeaseID); err != nil {
		return sandbox.Session{}, err
	}
	return s.service.GetSession(ctx, r)
}

func (s scoped) ListSessions(ctx context.Context, f sandbox.SessionFilter) ([]sandbox.Session, error) {
	if err := s.lease(ctx, f.LeaseID); err != nil {
		return nil, err
	}
	return s.service.ListSessions(ctx, f)
}

func (s scoped) CloseSession(ctx context.Context, r sandbox.SessionRef) (sandbox.Session, error) {
	if err := s.lease(ctx, r.LeaseID); err != nil {
		return sandbox.Session{}, err
	}
	return s.service.CloseSession(ctx, r)
}

func (s scoped) ListSessionEvents(ctx context.Context, f sandbox.SessionEventFilter) ([]sandbox.SessionEvent, error) {
	if err := s.lease(ctx, f.LeaseID); err != nil {
		return nil, err
	}
	return s.service.ListSessionEvents(ctx, f)
}

func (s scoped) FollowSessionEvents(ctx context.Context, f sandbox.SessionEventFilter, yield func(sandbox.SessionEvent) error) error {
	if err := s.lease(ctx, f.LeaseID); err != nil {
		return err
	}
	return s.service.FollowSessionEvents(ctx, f, yield)
}
