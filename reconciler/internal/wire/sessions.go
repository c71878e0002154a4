package wire

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// CreateSession is the body of a request for a session.
type CreateSession struct {
	ID   string            `json:"id,omitempty" doc:"Id for idempotent retries: a repeat of the request returns the same session. Never reusable. Default: generated."`
	Env  map[string]string `json:"env,omitempty" doc:"Initial variables. The ledger stores their values encrypted. No response contains them."`
	Cwd  string            `json:"cwd,omitempty" doc:"In /workspace or /data. Default /workspace."`
	User string            `json:"user,omitempty" doc:"\"uid\" or \"uid:gid\" in numbers; root needs the environment's confinement.allow_root. Default: the sandbox's user."`
}

// SessionClosed is the last event of a recording's stream.
const SessionClosed = "closed"

// SessionPage is a list of sessions.
type SessionPage struct {
	Sessions []sandbox.Session `json:"sessions" nullable:"false"`
}

// SessionEvent is one entry of a session's recording.
type SessionEvent struct {
	Sequence int64                    `json:"sequence"`
	At       time.Time                `json:"at"`
	Type     sandbox.SessionEventType `json:"type" enum:"input,output,error,system"`
	Source   sandbox.EventSource      `json:"source" enum:"user,agent,system"`
	ExecID   string                   `json:"exec_id,omitempty" doc:"The command of the event."`
	Data     string                   `json:"data"`
	Encoding string                   `json:"encoding,omitempty" enum:"base64"`
}

// SessionEventPage is one page of a recording.
type SessionEventPage struct {
	Events []SessionEvent `json:"events" nullable:"false"`
	// NextAfter is the after of the next page; absent on the last.
	NextAfter int64 `json:"next_after,omitempty"`
}

// SessionEventOf converts an event to its wire form.
func SessionEventOf(e sandbox.SessionEvent) SessionEvent {
	w := SessionEvent{Sequence: e.Sequence, At: e.At, Type: e.Type, Source: e.Source, ExecID: e.ExecID}
	w.Data, w.Encoding = Encode(e.Data)
	return w
}

// SessionEvent converts the wire form back.
func (w SessionEvent) SessionEvent() (sandbox.SessionEvent, error) {
	data, err := Decode(w.Data, w.Encoding)
	return sandbox.SessionEvent{
		Sequence: w.Sequence,
		At:       w.At,
		Type:     w.Type,
		Source:   w.Source,
		ExecID:   w.ExecID,
		Data:     data,
	}, err
}
