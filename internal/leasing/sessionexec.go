package leasing

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// join makes a command one of its session: it begins with the session's variables and directory, and what
// was typed is recorded. It may be called again after a failure.
func (c *command) join(tx *ledger.Tx, s *ledger.Sandbox) error {
	if c.req.Session == "" {
		return nil
	}
	c.joined = c.req
	row, err := c.openSession(tx, s)
	if err != nil {
		return err
	}
	env, err := c.engine.envOf(row)
	if err != nil {
		return err
	}
	c.joined.Env = maps.Clone(env)
	if c.joined.Env == nil {
		c.joined.Env = make(map[string]string)
	}
	maps.Copy(c.joined.Env, c.req.Env)
	if c.joined.Cwd == "" {
		c.joined.Cwd = row.Cwd
	}
	c.joined.User = row.RunAs
	c.row.Cwd, c.row.RunAs = c.joined.Cwd, c.joined.User
	return c.recordInput(tx, row)
}

// openSession returns the command's session, in which nothing may run. Errors: NotFound, Conflict.
func (c *command) openSession(tx *ledger.Tx, s *ledger.Sandbox) (*ledger.Session, error) {
	row, err := tx.Commands().Session(s.ID, c.req.Session)
	if err != nil {
		return nil, err
	}
	if row == nil { // it may be an older generation's
		if row, err = sessionOf(tx, sandbox.SessionRef{LeaseID: s.Lease(), ID: c.req.Session}); err != nil {
			return nil, err
		}
	}
	if row.State == sandbox.SessionClosed || row.SandboxID != s.ID {
		return nil, sandbox.Errorf(sandbox.Conflict, "lease %s: session %s of generation %d is closed: create another one", row.LeaseID, row.ID, row.Generation).WithReason(sandbox.ReasonSessionClosed)
	}
	running, err := tx.Commands().RunningInSession(s.ID, row.ID)
	if err == nil && running != "" {
		err = sandbox.Errorf(sandbox.Conflict, "lease %s: command %s runs in session %s, and commands of a session run one after the other: wait for its end, or cancel it", row.LeaseID, running, row.ID).WithReason(sandbox.ReasonSessionBusy)
	}
	return row, err
}

// recordInput records what was typed.
func (c *command) recordInput(tx *ledger.Tx, row *ledger.Session) error {
	typed := c.req.Shell
	if typed == "" {
		typed = quoted(c.req.Command)
	}
	err := tx.Commands().AppendSessionEvents(row, ledger.SessionEvent{At: tx.Now, Type: sandbox.SessionInput, Source: c.row.Source, ExecID: c.row.ID, Data: []byte(typed + "\n")})
	if err != nil {
		return err
	}
	c.recorded = recorded{at: row.LastSequence}
	return tx.Commands().SaveSession(row)
}

// quoted writes a command as a shell takes it.
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

// plainRunes need no quotes.
const plainRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,@%+"

// say records what the service has to say about a command, in its session if it has one.
func say(tx *ledger.Tx, x *ledger.Exec, texts ...string) error {
	if x.SessionID == "" || len(texts) == 0 {
		return nil
	}
	row, err := mustSession(tx, x)
	if err != nil {
		return err
	}
	for _, text := range texts {
		err := tx.Commands().AppendSessionEvents(row, ledger.SessionEvent{At: tx.Now, Type: sandbox.SessionSystem, Source: sandbox.SourceSystem, ExecID: x.ID, Data: []byte(text + "\n")})
		if err != nil {
			return err
		}
	}
	return tx.Commands().SaveSession(row)
}

// mustSession returns the session of a command that has one.
func mustSession(tx *ledger.Tx, x *ledger.Exec) (*ledger.Session, error) {
	row, err := tx.Commands().Session(x.SandboxID, x.SessionID)
	if err == nil && row == nil {
		err = sandbox.Errorf(sandbox.Internal, "command %s: its session %s is not on the ledger", x.ID, x.SessionID)
	}
	return row, err
}

// sayEnd records in its session how a command ended.
func sayEnd(tx *ledger.Tx, x *ledger.Exec) error {
	took := ledger.Span(tx.Now - x.StartedAt).Duration().D().Round(time.Millisecond)
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

// keepShellState keeps for its session what a line of the shell has left behind. A failure of that is said
// in the session, and fails nothing else.
func (e *Engine) keepShellState(tx *ledger.Tx, s *ledger.Sandbox, x *ledger.Exec, left *sandbox.ShellState) error {
	if !bool(x.IsShell) || x.State != sandbox.ExecFinished || bool(x.TimedOut) {
		return nil
	}
	row, err := mustSession(tx, x)
	if err != nil || row.State == sandbox.SessionClosed {
		return err
	}
	env, err := e.envOf(row)
	if err != nil {
		return say(tx, x, "what the line has set is not kept: "+err.Error())
	}
	newEnv, cwd, problems := left.Apply(env, row.Cwd, s.Host.EnvBlocked)
	changed := *row
	changed.Cwd = cwd
	if !maps.Equal(env, newEnv) {
		if err := e.putEnv(&changed, newEnv); err != nil {
			changed, problems = *row, append(problems, "what the line has set is not kept: "+err.Error())
		}
	}
	if err := tx.Commands().SaveSession(&changed); err != nil {
		return err
	}
	return say(tx, x, problems...)
}

// tapSession records from now on what the command writes, if it is one of a session.
func (c *command) tapSession() {
	if c.row.SessionID == "" {
		return
	}
	c.rec.tap = newTap(c.engine, c.row, c.use.holder, c.recorded)
	c.rec.stdout.tap, c.rec.stderr.tap = c.rec.tap.stream(sandbox.SessionOutput), c.rec.tap.stream(sandbox.SessionError)
}

// recordedOf returns how far the recording of a command is, for who takes it over.
func recordedOf(tx *ledger.Tx, x *ledger.Exec) (has recorded, err error) {
	if x.SessionID == "" {
		return has, nil
	}
	row, err := mustSession(tx, x)
	if err != nil {
		return has, err
	}
	has.at = row.LastSequence
	has.streams, err = tx.Commands().RecordedOf(x)
	return has, err
}
