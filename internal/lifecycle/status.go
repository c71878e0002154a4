package lifecycle

import (
	"cmp"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The events of a sandbox determine the state that its readers see. It never changes without an event.

func StatusOf(s *ledger.Sandbox, now micro.Time) sandbox.SandboxStatus {
	is := s.Status.Domain()
	if s.Desired == ledger.Present && RanLongEnough(s, now) { // even if that is not recorded yet
		is.ErrorCode, is.ErrorMessage = "", ""
	}
	return is
}

// StandsAs returns the state of a discovered sandbox from what its backend reports.
func StandsAs(seen sandbox.State) sandbox.SandboxState {
	switch seen {
	case sandbox.StateRunning:
		return sandbox.SandboxReady
	case sandbox.StatePaused:
		return sandbox.SandboxAsleep
	default:
		return sandbox.SandboxStopped
	}
}

// emitBeginning appends the event for the beginning of a step, if its action has one.
func emitBeginning(tx *ledger.Tx, s *ledger.Sandbox, a Action) error {
	switch {
	case a == Spawn || a == Assign:
		return tx.AppendSandboxEvent(s, sandbox.EventPreparing, nil)
	case a == Sleep && s.SleepMode == sandbox.SleepStop:
		return tx.AppendSandboxEvent(s, sandbox.EventStopRequested, map[string]any{"reason": s.Status.StopReason})
	}
	return nil
}

// stopReason says why a sandbox is put to sleep. next is its due step.
func stopReason(s *ledger.Sandbox, next Action) sandbox.StopReason {
	switch {
	case s.Pooled():
		return sandbox.StopPool
	case next == Sleep:
		return sandbox.StopIdle
	default:
		return sandbox.StopRequest
	}
}

// restEvent is the event of a sandbox that has gone to sleep.
func restEvent(mode sandbox.SleepMode) sandbox.EventType {
	if mode == sandbox.SleepStop {
		return sandbox.EventStopped
	}
	return sandbox.EventAsleep
}

// emitEnd appends the events of a lease's end. A failed sandbox gets sandbox.failed first.
func emitEnd(tx *ledger.Tx, s *ledger.Sandbox, end Ending) error {
	if end.Code != "" {
		s.Status.Fail(end.Code, end.Reason)
		if err := tx.AppendSandboxEvent(s, sandbox.EventFailed,
			map[string]any{"error_code": end.Code, "error_message": end.Reason}); err != nil {
			return err
		}
	}
	data := map[string]any{"ended_by": end.By, "reason": end.Reason}
	if s.Kept() {
		data["kept_until"] = s.Ending.KeptUntil.Time()
	}
	if err := tx.AppendSandboxEvent(s, sandbox.EventEnded, data); err != nil || s.Kept() {
		return err
	}
	return tx.AppendSandboxEvent(s, sandbox.EventDeleteRequested, map[string]any{"reason": end.By})
}

// FailedToBegin is the end of a lease whose sandbox will never be ready.
func FailedToBegin(cause error, at micro.Time) Ending {
	return Ending{
		By:     sandbox.EndedByFailed,
		Code:   cmp.Or(sandbox.ReasonOf(cause), sandbox.ReasonCreationFailed),
		Reason: cause.Error(),
		At:     at,
	}
}
