package service

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Sessions manages sessions. Commands are run in them by Exec and StartExec, with ExecRequest.Session:
// one at a time (Conflict with ReasonSessionBusy names the one that runs; ReasonSessionClosed). What is
// typed and written is recorded in order by the follower of the command, without gap or
// repetition, up to MaxSessionRecording; it is kept as long as the session's sandbox is.
type Sessions interface {
	// CreateSession opens a session; it wakes nothing. Errors: NotFound, LeaseEnded, Conflict (generation;
	// ReasonOtherSettings, the id names another session of this sandbox), Invalid.
	CreateSession(ctx context.Context, r sandbox.LeaseRef, c sandbox.CreateSession) (sandbox.Session, error)
	// GetSession returns a session. Errors: NotFound with ReasonSessionNotFound, also once it is retired
	// with its sandbox.
	GetSession(ctx context.Context, r sandbox.SessionRef) (sandbox.Session, error)
	// ListSessions returns the sessions of a lease in all its generations, the latest first. Errors: NotFound.
	ListSessions(ctx context.Context, f sandbox.SessionFilter) ([]sandbox.Session, error)
	// CloseSession closes a session and cancels the command that runs in it; its recording stays. A closed
	// one is returned as it is. Errors: NotFound; as CancelExec, and then it is closed all the same.
	CloseSession(ctx context.Context, r sandbox.SessionRef) (sandbox.Session, error)
	// ListSessionEvents returns a page of a session's recording. Errors: NotFound; Invalid for a sequence
	// that was never issued.
	ListSessionEvents(ctx context.Context, f sandbox.SessionEventFilter) ([]sandbox.SessionEvent, error)
	// FollowSessionEvents calls yield with each event, stored and new, and returns nil once the session is
	// closed and all are passed on. Errors: as ListSessionEvents; ctx's, yield's.
	FollowSessionEvents(ctx context.Context, f sandbox.SessionEventFilter, yield func(sandbox.SessionEvent) error) error
}
