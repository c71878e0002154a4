package sessions

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Join adds a command to the session that its request names. The command begins with the session's variables and
// directory, and its input is recorded. Join returns the request with these additions, and how far the recording is. It
// may be called again after a failure.
func (v *Service) Join(tx *ledger.Tx, s *ledger.Sandbox, x *execs.Exec,
	req sandbox.ExecRequest) (joined sandbox.ExecRequest, has Recorded, err error) {
	row, err := v.open(tx, s, req.Session)
	if err != nil {
		return joined, has, err
	}
	env, err := v.envOf(row)
	if err != nil {
		return joined, has, err
	}
	joined = req
	joined.Env = maps.Clone(env)
	if joined.Env == nil {
		joined.Env = make(map[string]string)
	}
	maps.Copy(joined.Env, req.Env)
	if joined.Cwd == "" {
		joined.Cwd = row.Cwd
	}
	joined.User = row.RunAs
	x.Cwd, x.RunAs = joined.Cwd, joined.User
	has, err = recordInput(tx, row, x, req)
	return joined, has, err
}

// open returns the session of a command, in which no command may run. Errors: NotFound, Conflict.
func (v *Service) open(tx *ledger.Tx, s *ledger.Sandbox, id string) (*execs.Session, error) {
	row, err := execs.In(tx).Session(s.ID, id)
	if err != nil {
		return nil, err
	}
	if row == nil { // it may belong to an older generation
		if row, err = sessionOf(tx, sandbox.SessionRef{LeaseID: s.Lease(), ID: id}); err != nil {
			return nil, err
		}
	}
	if row.State == sandbox.SessionClosed || row.SandboxID != s.ID {
		return nil, sandbox.Errorf(sandbox.Conflict, "lease %s: session %s of generation %d is closed: create another one",
			row.LeaseID, row.ID, row.Generation).WithReason(sandbox.ReasonSessionClosed)
	}
	running, err := execs.In(tx).RunningInSession(s.ID, row.ID)
	if err == nil && running != "" {
		err = sandbox.Errorf(sandbox.Conflict, "lease %s: command %s runs in session %s, and commands of a session run one "+
			"after the other: wait for its end, or cancel it", row.LeaseID, running, row.ID).
			WithReason(sandbox.ReasonSessionBusy)
	}
	return row, err
}

// recordInput records the command line as input of the session.
func recordInput(tx *ledger.Tx, row *execs.Session, x *execs.Exec, req sandbox.ExecRequest) (Recorded, error) {
	typed := req.Shell
	if typed == "" {
		typed = quoted(req.Command)
	}
	err := execs.In(tx).AppendSessionEvents(row, execs.SessionEvent{
		At:     tx.Now,
		Type:   sandbox.SessionInput,
		Source: x.Source,
		ExecID: x.ID,
		Data:   []byte(typed + "\n"),
	})
	if err != nil {
		return Recorded{}, err
	}
	return Recorded{at: row.LastSequence}, execs.In(tx).SaveSession(row)
}

// quoted returns a command as a line of a shell.
func quoted(command []string) string {
	words := make([]string, len(command))
	for i, w := range command {
		if w == "" || strings.ContainsFunc(w, func(r rune) bool { return !strings.ContainsRune(plainRunes, r) }) {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		words[i] = w
	}
	return strings.Join(words, " ")
}

// plainRunes are the characters that need no quotes.
const plainRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,@%+"

// say records texts of the service about a command, in its session if it has one.
func say(tx *ledger.Tx, x *execs.Exec, texts ...string) error {
	if x.SessionID == "" || len(texts) == 0 {
		return nil
	}
	row, err := mustSession(tx, x)
	if err != nil {
		return err
	}
	for _, text := range texts {
		err := execs.In(tx).AppendSessionEvents(row, execs.SessionEvent{
			At:     tx.Now,
			Type:   sandbox.SessionSystem,
			Source: sandbox.SourceSystem,
			ExecID: x.ID,
			Data:   []byte(text + "\n"),
		})
		if err != nil {
			return err
		}
	}
	return execs.In(tx).SaveSession(row)
}

// mustSession returns the session of a command that has one.
func mustSession(tx *ledger.Tx, x *execs.Exec) (*execs.Session, error) {
	row, err := execs.In(tx).Session(x.SandboxID, x.SessionID)
	if err == nil && row == nil {
		err = sandbox.Errorf(sandbox.Internal, "command %s: its session %s is not on the ledger", x.ID, x.SessionID)
	}
	return row, err
}

// SayEnd records in its session, if it has one, how a command ended.
func (v *Service) SayEnd(tx *ledger.Tx, x *execs.Exec) error {
	took := micro.Span(tx.Now - x.StartedAt).Duration().D().Round(time.Millisecond)
	switch {
	case x.State == sandbox.ExecFinished && bool(x.TimedOut):
		return say(tx, x, fmt.Sprintf("out of time after %s", took))
	case x.State == sandbox.ExecFinished && bool(x.OOMKilled):
		return say(tx, x, fmt.Sprintf("out of memory, exit code %d after %s", x.ExitCode, took))
	case x.State == sandbox.ExecFinished:
		return say(tx, x, fmt.Sprintf("exit code %d after %s", x.ExitCode, took))
	default:
		return say(tx, x, fmt.Sprintf("%s after %s: %s", x.State, took, x.Error))
	}
}

// KeepShellState stores the shell state after a line in its session. If that fails, it only says so in the session.
func (v *Service) KeepShellState(tx *ledger.Tx, s *ledger.Sandbox, x *execs.Exec, left *sandbox.ShellState) error {
	if !bool(x.IsShell) || x.State != sandbox.ExecFinished || bool(x.TimedOut) {
		return nil
	}
	row, err := mustSession(tx, x)
	if err != nil || row.State == sandbox.SessionClosed {
		return err
	}
	env, err := v.envOf(row)
	if err != nil {
		return say(tx, x, "what the line has set is not kept: "+err.Error())
	}
	newEnv, cwd, problems := left.Apply(env, row.Cwd, s.Host.EnvBlocked)
	changed := *row
	changed.Cwd = cwd
	if !maps.Equal(env, newEnv) {
		if err := v.putEnv(&changed, newEnv); err != nil {
			changed, problems = *row, append(problems, "what the line has set is not kept: "+err.Error())
		}
	}
	if err := execs.In(tx).SaveSession(&changed); err != nil {
		return err
	}
	return say(tx, x, problems...)
}

// RecordedOf returns how far the recording of a command is, for the process that takes it over.
func (v *Service) RecordedOf(tx *ledger.Tx, x *execs.Exec) (has Recorded, err error) {
	if x.SessionID == "" {
		return has, nil
	}
	row, err := mustSession(tx, x)
	if err != nil {
		return has, err
	}
	has.at = row.LastSequence
	has.streams, err = execs.In(tx).RecordedOf(x)
	return has, err
}
