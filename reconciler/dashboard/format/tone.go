package format

import (
	"encoding/json"
	"strconv"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Tone returns the colour of a state of any type, "" for none. Pages always show the word too.
func Tone(state any) string { return tones[state] }

var tones = map[any]string{
	sandbox.SandboxPending: "busy", sandbox.SandboxReady: "good", sandbox.SandboxAsleep: "calm",
	sandbox.SandboxStopped: "calm", sandbox.SandboxFailed: "bad", sandbox.SandboxDeleting: "busy",
	sandbox.SandboxDeleted: "none",
	sandbox.LeaseActive:    "good", sandbox.LeaseExpired: "busy", sandbox.LeaseDestroyed: "none",
	sandbox.EnvironmentOpen: "good", sandbox.EnvironmentClosed: "none",
	sandbox.ProcessPending: "busy", sandbox.ProcessRunning: "good", sandbox.ProcessFailed: "bad",
	sandbox.ProcessExited: "none", sandbox.ProcessKilled: "none", sandbox.ProcessStopped: "none",
	sandbox.CompanionStarting: "busy", sandbox.CompanionReady: "good", sandbox.CompanionFailed: "bad",
	sandbox.CompanionUnhealthy: "bad",
	sandbox.SessionOpen:        "good", sandbox.SessionClosed: "none",
	sandbox.VerdictPass: "good", sandbox.VerdictFinding: "bad", sandbox.VerdictInapplicable: "none",
	sandbox.DriftOpen: "bad", sandbox.DriftResolved: "none",
	sandbox.DeliveryApplied: "good", sandbox.DeliveryStale: "none", sandbox.DeliveryUnmatched: "warn",
	sandbox.LLMRunning: "busy", sandbox.LLMCompleted: "good", sandbox.LLMRejected: "bad", sandbox.LLMUnsent: "warn",
	sandbox.LLMInterrupted: "warn",
	sandbox.AgentStarting:  "busy", sandbox.AgentRunning: "good", sandbox.AgentAsleep: "calm", sandbox.AgentEnded: "none",
	sandbox.EventEgressAllowed: "good", sandbox.EventEgressDenied: "bad", sandbox.EventEgressFailed: "warn",
}

// Badge is a word with a colour.
type Badge struct{ Tone, Text string }

// Outcome returns the state of a command. A command that failed is red and shows its exit code.
func Outcome(e sandbox.Exec) Badge {
	switch {
	case e.State == sandbox.ExecRunning:
		return Badge{"busy", "running"}
	case e.State == sandbox.ExecCancelled:
		return Badge{"none", "cancelled"}
	case e.ExitCode == nil:
		return Badge{"bad", "failed"}
	}
	exit := ", exit " + strconv.Itoa(*e.ExitCode)
	switch {
	case e.TimedOut:
		return Badge{"bad", "timed out" + exit}
	case e.OOMKilled:
		return Badge{"bad", "out of memory" + exit}
	case *e.ExitCode != 0:
		return Badge{"bad", "failed" + exit}
	default:
		return Badge{"good", "finished"}
	}
}

// EventTone is "bad" for an event of a failure, and otherwise "".
func EventTone(e sandbox.Event) string {
	var data struct {
		ExitCode int `json:"exit_code"`
	}
	switch e.Type {
	case sandbox.EventExecFailed, sandbox.EventFailed, sandbox.EventDrift, sandbox.EventDeleteFailed,
		sandbox.EventSnapshotSaveFailed, sandbox.EventSnapshotLost, sandbox.EventDiskLost,
		sandbox.EventCompanionFailed, sandbox.EventCompanionUnhealthy:
		return "bad"
	case sandbox.EventExecFinished, sandbox.EventProcessExited:
		if json.Unmarshal(e.Data, &data) == nil && data.ExitCode != 0 {
			return "bad"
		}
	}
	return ""
}
