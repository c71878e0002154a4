package lifecycle

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// A sandbox that stopped on its own is restarted in place, until it is healthy or has failed for too long.
const (
	// CrashClears is how long it must run to count as healthy again.
	CrashClears = 30 * time.Second
	// CrashFails is how long it may stay unhealthy. Time without its backend does not count.
	CrashFails = 5 * time.Minute
)

// RanLongEnough reports whether a sandbox has run so long at a time that earlier crashes are forgotten.
func RanLongEnough(s *ledger.Sandbox, at ledger.Time) bool {
	return s.Phase == sandbox.PhaseAwake && at >= s.Status.Since.Add(ledger.SpanOf(CrashClears))
}

// RestartAt returns when a stopped sandbox is restarted. The first restart is immediate.
func RestartAt(s *ledger.Sandbox, stopped ledger.Time) ledger.Time {
	if s.Crash.Count <= 1 {
		return stopped
	}
	return stopped.Add(ledger.SpanOf(Backoff(s.Crash.Count - 1)))
}

// Crashed is the ending of a lease whose sandbox does not stay up.
func Crashed(s *ledger.Sandbox, at ledger.Time) Ending {
	return Ending{By: sandbox.EndedByCrashed, Code: s.Status.ErrorCode, Reason: s.Status.ErrorMessage, At: at}
}

// restart returns the next step of a stopped sandbox, and its ending once the attempts took too long.
func restart(s *ledger.Sandbox, now ledger.Time) (Action, ledger.Time, *Ending) {
	if s.Schedule.Attempts > 0 && s.Crash.Since.Add(ledger.SpanOf(CrashFails)) <= now {
		end := Crashed(s, now)
		return None, now, &end
	}
	if at := RestartAt(s, s.Status.Since); at > now {
		return None, at, nil
	}
	return Wake, now, nil
}
