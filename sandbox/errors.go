package sandbox

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Code is the kind of failure, so that callers can decide without reading the text. Every error that a Service
// or an Executor returns has one.
type Code string

// The error codes. Only reconciler/api maps them to HTTP statuses.
const (
	// Invalid: the request is wrong and a retry cannot succeed. Error.Fields names the fields.
	Invalid Code = "invalid"
	// NotFound: the object does not exist on this ledger or backend instance.
	NotFound Code = "not_found"
	// Conflict: the object's state, owner or settings do not allow the request.
	Conflict Code = "conflict"
	// LeaseEnded: the lease has ended. Acquire it again to get its next generation.
	LeaseEnded Code = "lease_ended"
	// EnvironmentEnded: a condition closed the environment. It grants no leases until it is reopened.
	EnvironmentEnded Code = "environment_ended"
	// BudgetExceeded: the environment's monthly budget does not cover another lease.
	BudgetExceeded Code = "budget_exceeded"
	// CapacityExceeded: the backend has no room. Retry later.
	CapacityExceeded Code = "capacity_exceeded"
	// EventSequenceExpired: not all events after the given sequence are retained.
	EventSequenceExpired Code = "event_sequence_expired"
	// OutputExpired: the output of the command or session is no longer kept.
	OutputExpired Code = "output_expired"
	// Unauthenticated: credentials are missing or wrong.
	Unauthenticated Code = "unauthenticated"
	// Forbidden: the credentials do not allow this.
	Forbidden Code = "forbidden"
	// Unavailable: a backend, the ledger or the service cannot be reached, or the wrong backend instance
	// answered. Nothing is known to have changed. Retry.
	Unavailable Code = "unavailable"
	// UnknownOutcome: the request was sent and its result is unknown. A retry is safe for every operation of an
	// Executor except Exec.
	UnknownOutcome Code = "unknown_outcome"
	// Timeout: the operation timed out.
	Timeout Code = "timeout"
	// Failed: the operation ran and failed, for example because an image does not start.
	Failed Code = "failed"
	// Internal: a defect of this program.
	Internal Code = "internal"
)

// Reason refines a code for programs. It is part of the API.
type Reason string

// The reasons. The first thirteen come from the project's original error catalogue.
const (
	ReasonSandboxNotFound       Reason = "sandbox_not_found"
	ReasonCreationFailed        Reason = "sandbox_creation_failed"
	ReasonStartFailed           Reason = "sandbox_start_failed"
	ReasonStopFailed            Reason = "sandbox_stop_failed"
	ReasonRemovalFailed         Reason = "sandbox_removal_failed"
	ReasonExecFailed            Reason = "sandbox_exec_failed"
	ReasonConnectionFailed      Reason = "sandbox_connection_failed"
	ReasonInvalidState          Reason = "sandbox_invalid_state"
	ReasonFileNotFound          Reason = "sandbox_file_not_found"
	ReasonWriteFailed           Reason = "sandbox_write_failed"
	ReasonCopyFailed            Reason = "sandbox_copy_failed"
	ReasonStatsFailed           Reason = "sandbox_stats_failed"
	ReasonResourceLimitExceeded Reason = "sandbox_resource_limit_exceeded"
	ReasonTimeout               Reason = "sandbox_timeout"

	// Causes of failure of a sandbox that was ready.
	ReasonCrashed     Reason = "sandbox_crashed"
	ReasonOutOfMemory Reason = "sandbox_out_of_memory"
	ReasonVanished    Reason = "sandbox_vanished"
	// ReasonPartMissing: the sandbox lost a required resource, such as its network. It is not repaired.
	ReasonPartMissing Reason = "sandbox_part_missing"

	ReasonOtherOwner      Reason = "other_owner"
	ReasonOtherSettings   Reason = "other_settings"
	ReasonOtherGeneration Reason = "other_generation"
	ReasonOtherInstance   Reason = "other_backend_instance"
	// ReasonLedgerBehind: the ledger is older than the state that it left on a backend instance. Adopting resolves this.
	ReasonLedgerBehind  Reason = "ledger_behind"
	ReasonOtherBody     Reason = "other_body"
	ReasonActiveLeases  Reason = "active_leases"
	ReasonImageNotFound Reason = "image_not_found"
	ReasonExecNotFound  Reason = "exec_not_found"
	ReasonExecCancelled Reason = "exec_cancelled"
	// ReasonVerifierRuns: the sandbox was frozen, for a verifier or a snapshot, during the command's whole
	// timeout.
	ReasonVerifierRuns    Reason = "verifier_runs"
	ReasonProcessNotFound Reason = "process_not_found"
	ReasonProcessEnded    Reason = "process_ended"
	// ReasonCompanionNotFound: the lease's environment declared no such companion when the lease began.
	ReasonCompanionNotFound Reason = "companion_not_found"
	// ReasonPostStartFailed: a post-start command of the environment failed, so the lease did not begin.
	ReasonPostStartFailed Reason = "post_start_failed"
	// ReasonWorkspaceFailed: the workspace of the environment could not be fetched, so the lease did not begin.
	ReasonWorkspaceFailed Reason = "workspace_failed"
	// ReasonCompanionFailed: a companion of the environment did not become ready, so the lease did not begin.
	ReasonCompanionFailed Reason = "companion_failed"
	// ReasonArchiveFailed: an archive of the environment could not be unpacked, so the lease did not begin.
	ReasonArchiveFailed Reason = "archive_failed"
	// ReasonToolMissing: the image lacks one of the environment's builtin tools, so the lease did not begin.
	ReasonToolMissing     Reason = "tool_missing"
	ReasonSessionNotFound Reason = "session_not_found"
	ReasonSessionClosed   Reason = "session_closed"
	ReasonSessionBusy     Reason = "session_busy"
	// ReasonScopeMissing and ReasonEnvironmentNotAllowed: the token lacks a right.
	ReasonScopeMissing          Reason = "scope_missing"
	ReasonEnvironmentNotAllowed Reason = "environment_not_allowed"
	// ReasonCeilingExceeded: the request exceeds the token's ceiling. The fields name each limit.
	ReasonCeilingExceeded Reason = "ceiling_exceeded"
	// Problems of credentials. ReasonSignatureWrong gives no details, because the sender is unknown.
	ReasonTokenMissing   Reason = "token_missing"
	ReasonTokenUnknown   Reason = "token_unknown"
	ReasonTokenExpired   Reason = "token_expired"
	ReasonTokenRevoked   Reason = "token_revoked"
	ReasonSignatureWrong Reason = "signature_wrong"
	ReasonLoginEnded     Reason = "login_ended"
	// ReasonRateLimited: the caller sends more than its share of requests.
	ReasonRateLimited Reason = "rate_limited"
	// ReasonRegistryCredentials: a container registry, not this service, rejected the credentials.
	ReasonRegistryCredentials Reason = "registry_credentials"
)

// FailsEverywhere reports whether the environment's own settings made a sandbox fail: another sandbox would fail too.
func (r Reason) FailsEverywhere() bool {
	switch r {
	case ReasonPostStartFailed, ReasonWorkspaceFailed, ReasonCompanionFailed, ReasonArchiveFailed,
		ReasonToolMissing:
		return true
	default:
		return false
	}
}

// Field is a wrong field of a request.
type Field struct {
	// Name is the field's path in the request, such as "data.environment_id".
	Name string `json:"name"`
	// Problem says what is wrong and what is valid.
	Problem string `json:"problem"`
}

// Error is the only error type of this program.
type Error struct {
	Code   Code
	Reason Reason
	// Message says what was tried, on which object, why it failed and what to do next.
	Message string
	Fields  []Field
	// Err is the cause. Message already contains its text. errors.Is and errors.As find it.
	Err error
}

func (e *Error) Error() string {
	msg := e.Message
	for _, f := range e.Fields {
		msg += fmt.Sprintf("; %s: %s", f.Name, f.Problem)
	}
	return msg
}

func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an error with a code. A %w verb sets its cause.
func Errorf(code Code, format string, args ...any) *Error {
	wrapped := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: wrapped.Error(), Err: errors.Unwrap(wrapped)}
}

// WithReason sets the reason and returns the error.
func (e *Error) WithReason(r Reason) *Error {
	e.Reason = r
	return e
}

// InvalidFields returns an Invalid error with the fields, or nil if there are none.
func InvalidFields(what string, fields []Field) error {
	if len(fields) == 0 {
		return nil
	}
	return &Error{Code: Invalid, Message: what + " is not valid", Fields: fields}
}

// CodeOf returns the error's code: "" for nil, Internal for an error without one.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return Internal
}

// ReasonOf returns the error's reason, "" if it has none.
func ReasonOf(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

// IsRetryable reports whether the same request may succeed later.
func IsRetryable(err error) bool {
	switch CodeOf(err) {
	case Unavailable, UnknownOutcome, CapacityExceeded, Timeout:
		return true
	default:
		return false
	}
}

// PartialError is the error of a List without the answers of some environments. Its code is Unavailable.
type PartialError struct {
	// Missing holds each missing environment's error by the environment's backend name. It is never empty.
	Missing map[string]error
	// NameOf returns the backend name of an environment.
	NameOf func(environmentID string) string
}

// Of returns why an environment did not answer, nil if it did.
func (p *PartialError) Of(environmentID string) error { return p.Missing[p.NameOf(environmentID)] }

// Error implements error.
func (p *PartialError) Error() string {
	lines := make([]string, 0, len(p.Missing))
	for _, name := range slices.Sorted(maps.Keys(p.Missing)) {
		lines = append(lines, fmt.Sprintf("environment %s does not answer: %v", name, p.Missing[name]))
	}
	return strings.Join(lines, "; ")
}

// Unwrap gives the error its code.
func (p *PartialError) Unwrap() error { return &Error{Code: Unavailable, Err: errUnanswered} }

var errUnanswered = errors.New("some environments do not answer")
