package service

import (
	"context"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Sessions manages sessions. Exec and StartExec with ExecRequest.Session run commands in them, one at a time
// (Conflict with ReasonSessionBusy names the running one; ReasonSessionClosed). The follower of a command
// records its input and output in order, without gap or repetition, up to MaxSessionRecording. The recording
// is kept as long as the session's sandbox.
type Sessions interface {
	// CreateSession opens a session. It wakes no sandbox. Errors: NotFound, LeaseEnded, Conflict (generation;
	// ReasonOtherSettings if the id names another session of this sandbox), Invalid.
	CreateSession(ctx context.Context, r sandbox.LeaseRef, c sandbox.CreateSession) (sandbox.Session, error)
	// GetSession returns a session. Errors: NotFound with ReasonSessionNotFound, also after the session was
	// purged with its sandbox.
	GetSession(ctx context.Context, r sandbox.SessionRef) (sandbox.Session, error)
	// ListSessions returns the sessions of a lease in all generations, newest first. Errors: NotFound.
	ListSessions(ctx context.Context, f sandbox.SessionFilter) ([]sandbox.Session, error)
	// CloseSession closes a session and cancels its running command. Its recording stays. A closed session is
	// returned unchanged. Errors: NotFound; as CancelExec, but the session is closed in any case.
	CloseSession(ctx context.Context, r sandbox.SessionRef) (sandbox.Session, error)
	// ListSessionEvents returns a page of a session's recording. Errors: NotFound; Invalid for a sequence
	// that was never issued.
	ListSessionEvents(ctx context.Context, f sandbox.SessionEventFilter) ([]sandbox.SessionEvent, error)
	// FollowSessionEvents calls yield with each stored and new event, and returns nil once the session is
	// closed and all events were yielded. Errors: as ListSessionEvents; those of ctx and yield.
	FollowSessionEvents(ctx context.Context, f sandbox.SessionEventFilter, yield func(sandbox.SessionEvent) error) error
}
