package leasing

import (
	"cmp"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Where a sandbox stands, as its readers see it, is what its events tell: none is changed without one.

func standing(s *ledger.Sandbox, now ledger.Time) sandbox.Standing {
	is := s.Standing.Domain()
	if s.Desired == ledger.Present && ranLongEnough(s, now) { // also where it is not recorded yet
		is.ErrorCode, is.ErrorMessage = "", ""
	}
	return is
}

// standsAs is the state of a sandbox that was found, by what its backend says.
func standsAs(seen sandbox.State) sandbox.SandboxState {
	switch seen {
	case sandbox.StateRunning:
		return sandbox.SandboxReady
	case sandbox.StatePaused:
		return sandbox.SandboxAsleep
	default:
		return sandbox.SandboxStopped
	}
}

// tellBeginning appends the event of a step that begins, where it has one.
func tellBeginning(tx *ledger.Tx, s *ledger.Sandbox, a action) error {
	switch {
	case a == actSpawn || a == actAssign:
		return tx.AppendSandboxEvent(s, sandbox.EventPreparing, nil)
	case a == actSleep && s.SleepMode == sandbox.SleepStop:
		return tx.AppendSandboxEvent(s, sandbox.EventStopRequested, map[string]any{"reason": s.Standing.StopReason})
	}
	return nil
}

// stopReason says why a sandbox is put to sleep, whose due step is next.
func stopReason(s *ledger.Sandbox, next action) sandbox.StopReason {
	switch {
	case pooled(s):
		return sandbox.StopPool
	case next == actSleep:
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

// tellEnd appends the events of a lease's end. What failed is told so first.
func tellEnd(tx *ledger.Tx, s *ledger.Sandbox, end ending) error {
	if end.code != "" {
		s.Standing.Fail(end.code, end.reason)
		if err := tx.AppendSandboxEvent(s, sandbox.EventFailed, map[string]any{"error_code": end.code, "error_message": end.reason}); err != nil {
			return err
		}
	}
	data := map[string]any{"ended_by": end.by, "reason": end.reason}
	if isKept(s) {
		data["kept_until"] = s.Ending.KeptUntil.Time()
	}
	if err := tx.AppendSandboxEvent(s, sandbox.EventEnded, data); err != nil || isKept(s) {
		return err
	}
	return tx.AppendSandboxEvent(s, sandbox.EventDeleteRequested, map[string]any{"reason": end.by})
}

// failedToBegin is the end of a lease whose sandbox will never be ready.
func failedToBegin(cause error, at ledger.Time) ending {
	return ending{by: sandbox.EndedByFailed, code: cmp.Or(sandbox.ReasonOf(cause), sandbox.ReasonCreationFailed), reason: cause.Error(), at: at}
}
