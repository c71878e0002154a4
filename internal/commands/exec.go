package commands

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/accounting"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/bucketobjects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/output"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sessions"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Config configures a Service. All fields are required.
type Config struct {
	Core     *lifecycle.Core
	Store    *ledger.Store
	IDs      sandbox.IDs
	Log      *slog.Logger
	Outputs  *output.Service
	Sessions *sessions.Service
}

// Service is safe for concurrent use, by any number of processes on one ledger.
type Service struct{ Config }

var (
	_ lifecycle.Initializer = (*Service)(nil)
	_ lifecycle.Preparer    = (*Service)(nil)
	_ lifecycle.Settler     = (*Service)(nil)
	_ lifecycle.Extender    = (*Service)(nil)
)

// New returns a Service.
func New(c Config) *Service { return &Service{Config: c} }

// useTTL is how long a running command keeps its lease awake without a follower. Within it, a restarted or another
// process can take the command over after lifecycle.ClaimTTL.
const useTTL = 40 * time.Second

// Extension implements lifecycle.Extender: the commands that this process follows stay its own.
func (v *Service) Extension() lifecycle.Extension {
	holders := v.Core.Holders(useTTL)
	if len(holders) == 0 {
		return nil
	}
	return func(tx *ledger.Tx, until micro.Time) error { return execs.In(tx).ExtendExecs(holders, until) }
}

// command is a command that this process runs or follows under its claim.
type command struct {
	commands *Service
	use      *lifecycle.Use
	row      execs.Exec
	req      sandbox.ExecRequest
	rec      *output.Recording
	// tap records the output in the command's session, nil without a session.
	tap *sessions.Tap
	// making is set for commands that make their sandbox ready. They do not wake it.
	making bool
	// joined is req with its session's additions. recorded is how far the session's recording is.
	joined   sandbox.ExecRequest
	recorded sessions.Recorded
}

// Exec implements service.Execs.
func (v *Service) Exec(ctx context.Context, r sandbox.LeaseRef, req sandbox.ExecRequest) (sandbox.ExecResult, error) {
	if err := req.CheckAttached(); err != nil {
		return sandbox.ExecResult{}, err
	}
	c, known, err := v.beginExec(ctx, r, req)
	if err != nil {
		return sandbox.ExecResult{}, err
	}
	if known != nil {
		return v.rejoin(ctx, known, req)
	}
	defer c.discard()
	bounded, cancel := c.bounded(ctx)
	defer cancel()
	x, h := c.use.On()
	res, runErr := x.Exec(bounded, h, c.request())
	c.rec.Fill(&res)
	res.ExecID = c.row.ID
	err = c.end(ctx, res, runErr, ctx.Err() != nil)
	if !c.tellsCPU(res) {
		v.Core.Sampler.Soon(&c.use.Row)
	}
	res.Shell, res.CPUTime = nil, 0 // only for the session and the ledger
	if err != nil {
		// Unavailable would invite the caller to run it twice.
		return res, sandbox.Errorf(sandbox.UnknownOutcome, "lease %s: command %s was run, and the ledger did not record "+
			"how it ended: %w; the reconciler asks the sandbox again: check the command's status before you run it again",
			r.ID, c.row.ID, err)
	}
	if runErr != nil && c.row.State == sandbox.ExecCancelled && ctx.Err() == nil && c.row.CancelAt != 0 {
		return sandbox.ExecResult{}, errCancelled(&c.row)
	}
	return res, c.use.Explain(ctx, runErr)
}

// errCancelled is the error of a command that a caller ended.
func errCancelled(x *execs.Exec) error {
	return sandbox.Errorf(sandbox.Failed, "command %s was cancelled: %s", x.ID, x.Error).
		WithReason(sandbox.ReasonExecCancelled)
}

// StartExec implements service.Execs.
func (v *Service) StartExec(ctx context.Context, r sandbox.LeaseRef, req sandbox.ExecRequest) (sandbox.Exec, error) {
	req.Detach = true
	c, known, err := v.beginExec(ctx, r, req)
	if err != nil {
		return sandbox.Exec{}, err
	}
	id := req.ID
	if known == nil {
		id = c.row.ID
		if !c.goOn(true) {
			return sandbox.Exec{}, sandbox.Errorf(sandbox.Unavailable,
				"lease %s: the lease service is closing: command %s was not started", r.ID, id)
		}
	}
	ref := sandbox.ExecRef{LeaseID: r.ID, ID: id}
	if err := v.awaitBegun(ctx, ref); err != nil {
		return sandbox.Exec{}, err
	}
	return v.GetExec(ctx, ref)
}

// beginExec records a command as running in an awake sandbox. If an equal request has begun it before, beginExec
// returns that command.
func (v *Service) beginExec(ctx context.Context, r sandbox.LeaseRef,
	req sandbox.ExecRequest) (*command, *execs.Exec, error) {
	unset := req.Timeout == 0
	req, err := req.Normalize()
	if err != nil {
		return nil, nil, err
	}
	c := &command{commands: v, row: newExec(r.ID, req)}
	if unset {
		c.row.Timeout = 0
	}
	if known, err := v.known(ctx, r, &c.row); err != nil || known != nil {
		return nil, known, err
	}
	if req.ID == "" {
		req.ID = v.IDs(sandbox.SandboxIDLength)
		c.row.ID = req.ID
	}
	c.req, c.rec = req, output.NewRecording(req, v.Outputs.KeepsMore())
	c.use, err = v.Core.BeginUse(ctx, r, useTTL, func(tx *ledger.Tx, s *ledger.Sandbox, holder string) error {
		if err := c.checkBackend(s); err != nil {
			return err
		}
		if unset {
			c.row.Timeout = cmp.Or(s.CommandTimeout, micro.SpanOf(sandbox.DefaultExecTimeout))
			c.req.Timeout = c.row.Timeout.Duration()
		}
		if err := c.join(tx, s); err != nil {
			return err
		}
		c.row.Holder = holder
		return record(tx, s, &c.row)
	})
	if err != nil {
		if sandbox.CodeOf(err) == sandbox.Conflict { // an equal request may have begun it meanwhile
			if known, knownErr := v.known(ctx, r, &c.row); knownErr == nil && known != nil {
				return nil, known, nil
			}
		}
		return nil, nil, err
	}
	c.use.Changes = true // a command that fails may have written before
	c.tapSession()
	return c, nil, nil
}

// newExec returns the row of a normalized request.
func newExec(leaseID string, req sandbox.ExecRequest) execs.Exec {
	return execs.Exec{
		ID:        req.ID,
		Named:     req.ID != "",
		LeaseID:   leaseID,
		Command:   programOf(req),
		EnvNames:  append([]string{}, slices.Sorted(maps.Keys(req.Env))...),
		Cwd:       req.Cwd,
		RunAs:     cmp.Or(string(req.As), req.User),
		Timeout:   micro.SpanOf(req.Timeout),
		Detached:  ledger.Flag(req.Detach),
		State:     sandbox.ExecRunning,
		SessionID: req.Session,
		IsShell:   req.Shell != "",
		Source:    req.Source,
	}
}

// programOf returns the program that a request runs, with its arguments.
func programOf(req sandbox.ExecRequest) []string {
	if req.Shell != "" {
		return []string{"/bin/sh", "-c", req.Shell}
	}
	return req.Command
}

// record stores a new command, with its event. Errors: Invalid if the environment does not allow it.
func record(tx *ledger.Tx, s *ledger.Sandbox, x *execs.Exec) error {
	if err := checkExec(s.Rules(), x); err != nil {
		return err
	}
	data := map[string]any{"exec_id": x.ID, "program": x.Command[0], "timeout": x.Timeout.Duration()}
	if x.Detached {
		data["detached"] = true
	}
	if as := x.As(); as != "" {
		data["as"] = as
	}
	if x.SessionID != "" {
		data["session_id"] = x.SessionID
	}
	if err := tx.AppendSandboxEvent(s, sandbox.EventExecStarted, data); err != nil {
		return err
	}
	x.SandboxID, x.Generation, x.Sequence = s.ID, s.Generation, s.LastSequence
	x.StartedAt, x.HeldUntil = tx.Now, tx.Now.Add(micro.SpanOf(lifecycle.ClaimTTL))
	return execs.In(tx).CreateExec(x)
}

func checkExec(rules sandbox.CommandRules, x *execs.Exec) error {
	if x.As() == sandbox.AsVerifier {
		return rules.CheckVerifier("exec", x.EnvNames)
	}
	return rules.Check("exec", x.EnvNames, x.User())
}

// join adds the command to its session, if it has one.
func (c *command) join(tx *ledger.Tx, s *ledger.Sandbox) (err error) {
	if c.req.Session != "" {
		c.joined, c.recorded, err = c.commands.Sessions.Join(tx, s, &c.row, c.req)
	}
	return err
}

// tapSession starts to record the command's output in its session, if it has one.
func (c *command) tapSession() {
	if c.row.SessionID == "" {
		return
	}
	c.tap = c.commands.Sessions.NewTap(c.row, c.use.Holder, c.recorded)
	c.rec.Stdout.Tap, c.rec.Stderr.Tap = c.tap.Stream(sandbox.SessionOutput), c.tap.Stream(sandbox.SessionError)
}

// checkBackend refuses what the sandbox's backend cannot run.
func (c *command) checkBackend(s *ledger.Sandbox) error {
	if c.row.As() != sandbox.AsVerifier {
		return nil
	}
	if x, _, err := c.commands.Core.On(s); err == nil && x.Capabilities().Verifier {
		return nil
	}
	return sandbox.InvalidFields("exec", []sandbox.Field{sandbox.VerifierField(s.Backend)})
}

// known returns the command that an earlier request began under the same chosen id, nil if there is none. Errors:
// Conflict if the id names another command.
func (v *Service) known(ctx context.Context, r sandbox.LeaseRef, want *execs.Exec) (known *execs.Exec, err error) {
	if !want.Named {
		return nil, nil
	}
	err = v.Store.Read(ctx, func(tx *ledger.Tx) (err error) {
		known, err = execs.In(tx).Exec(want.ID)
		return err
	})
	if err != nil || known == nil {
		return nil, err
	}
	var f []sandbox.Field
	for _, is := range []struct {
		name string
		same bool
	}{
		{"lease", known.LeaseID == r.ID},
		{"generation", r.Generation == 0 || r.Generation == known.Generation},
		{"command", slices.Equal(known.Command, want.Command)},
		{"env", slices.Equal(known.EnvNames, want.EnvNames)},
		{"session", known.SessionID == want.SessionID},
		{"cwd", known.Cwd == want.Cwd || want.Cwd == ""}, // it defaults to that of the session or user
		{"as", known.As() == want.As()},
		{"user", known.As() != want.As() || known.RunAs == want.RunAs || want.SessionID != ""},
		{"timeout", known.Timeout == want.Timeout || want.Timeout == 0}, // it defaults to the environment's
		{"detach", known.Detached == want.Detached},
	} {
		if !is.same {
			f = append(f, sandbox.Field{Name: is.name, Problem: "differs from that of the command with this id"})
		}
	}
	if len(f) == 0 {
		return known, nil
	}
	return nil, &sandbox.Error{Code: sandbox.Conflict, Reason: sandbox.ReasonOtherSettings, Fields: f,
		Message: fmt.Sprintf("lease %s: the id %s names another command: choose another id", r.ID, want.ID)}
}

// discard drops the recording once it is stored, or if it is not needed.
func (c *command) discard() {
	c.tap.Close()
	c.rec.Discard()
}

// request returns the request to the backend.
func (c *command) request() sandbox.ExecRequest {
	req := c.req
	if req.Session != "" {
		req = c.joined
	}
	if c.tap != nil && req.Stdin != nil {
		req.Stdin = io.TeeReader(req.Stdin, c.tap.Stream(sandbox.SessionInput))
	}
	req.Stdout, req.Stderr = &c.rec.Stdout, &c.rec.Stderr
	return req
}

// end settles a command, and ends its use of the sandbox. left means that the caller went away.
func (c *command) end(ctx context.Context, res sandbox.ExecResult, runErr error, left bool) error {
	ctx = context.WithoutCancel(ctx)
	c.tap.Close()
	stored := c.commands.Outputs.StoreLarge(ctx, &c.row, c.rec)
	settled := false
	err := c.use.Leave(ctx, runErr == nil && res.ExitCode == 0, func(tx *ledger.Tx, s *ledger.Sandbox, _ string) error {
		settled = true
		x, err := c.publish(tx, res, stored)
		if err != nil || x == nil {
			return err
		}
		if x.State != sandbox.ExecRunning { // a halt of the sandbox settled it
			return c.keepOutput(tx, x)
		}
		err = c.commands.settleExec(tx, s, x, res, runErr, left)
		c.row = *x
		if err != nil {
			return err
		}
		if err := c.commands.Sessions.KeepShellState(tx, s, x, res.Shell); err != nil {
			return err
		}
		if err := c.countCPU(tx, s, res); err != nil {
			return err
		}
		return c.commands.Outputs.BoundGrown(tx)
	})
	if err != nil || settled {
		return err
	}
	return c.commands.Store.Write(ctx, func(tx *ledger.Tx) error { // the sandbox is gone, which settled the command
		x, err := c.publish(tx, res, stored)
		if err != nil || x == nil {
			return err
		}
		return c.keepOutput(tx, x)
	})
}

// keepOutput stores a settled command with its output.
func (c *command) keepOutput(tx *ledger.Tx, x *execs.Exec) error {
	c.row = *x
	if err := execs.In(tx).SaveExec(x); err != nil {
		return err
	}
	return c.commands.Outputs.BoundGrown(tx)
}

// tellsCPU reports whether a result has the CPU time of the sandbox. Sandboxes that count their starts report it
// elsewhere.
func (c *command) tellsCPU(res sandbox.ExecResult) bool {
	return res.CPUTime != 0 && c.use.Row.Meter.Boot == 0
}

// countCPU adds the CPU time that the sandbox has used until the command ended.
func (c *command) countCPU(tx *ledger.Tx, s *ledger.Sandbox, res sandbox.ExecResult) error {
	reading := micro.SpanOf(res.CPUTime)
	// The reading may be late, or from another start of the sandbox.
	if !c.tellsCPU(res) || s.Phase != sandbox.PhaseAwake || s.Crash.Count != c.use.Row.Crash.Count ||
		reading < s.Meter.CPUMark {
		return nil
	}
	return accounting.In(tx).AddCPU(s, reading, tx.Now)
}

// publish adds the output to the command's record and returns the record, which the caller must store. It returns nil
// if another reconciler follows the command: a late result changes nothing.
func (c *command) publish(tx *ledger.Tx, res sandbox.ExecResult, stored error) (*execs.Exec, error) {
	x, err := execs.In(tx).Exec(c.row.ID)
	if err != nil || x == nil || x.Holder != c.use.Holder {
		return nil, err
	}
	if err := c.tap.Rest(tx, x); err != nil {
		return nil, err
	}
	x.Stdout, x.Stderr = c.rec.Stdout.Output(res.StdoutBytes, stored == nil), c.rec.Stderr.Output(res.StderrBytes,
		stored == nil)
	if x.State == sandbox.ExecRunning {
		x.Error = c.keptProblem(stored)
	}
	for stream, o := range map[sandbox.ExecStream]execs.Output{sandbox.Stdout: x.Stdout, sandbox.Stderr: x.Stderr} {
		if o.IsObject() {
			if err := bucketobjects.In(tx).ForgetObjects([]string{x.OutputObject(stream)}); err != nil {
				return nil, err
			}
		}
	}
	return x, nil
}

// Settled implements lifecycle.Settler: when a sandbox is halted or killed, it settles the commands and closes the
// sessions. The process that follows a command adds the output.
func (v *Service) Settled(tx *ledger.Tx, s *ledger.Sandbox, t *lifecycle.Step) error {
	if t.Action != lifecycle.Halt && t.Action != lifecycle.Kill {
		return nil
	}
	running, err := execs.In(tx).RunningExecs(s.ID)
	for i := range running {
		if err == nil {
			err = v.settleExec(tx, s, &running[i], sandbox.ExecResult{}, errEndedWithSandbox, false)
		}
	}
	if err != nil {
		return err
	}
	return v.Sessions.CloseAll(tx, s.ID)
}

// errEndedWithSandbox is the error of a command whose sandbox ended unexpectedly.
var errEndedWithSandbox = sandbox.Errorf(sandbox.Failed, "its sandbox ended meanwhile")

// keptProblem says why less of the output is kept than could be, "" if all of it is.
func (c *command) keptProblem(stored error) string {
	for _, err := range []error{stored, c.rec.Stdout.Problem, c.rec.Stderr.Problem} {
		if err != nil {
			return "not all of its output is kept: " + err.Error()
		}
	}
	return ""
}

// settleExec records how a command ended, within an update of its sandbox.
func (v *Service) settleExec(tx *ledger.Tx, s *ledger.Sandbox, x *execs.Exec, res sandbox.ExecResult,
	runErr error, left bool) error {
	finished, runErr, err := underStop(tx, x, runErr)
	if err != nil {
		return err
	}
	if runErr == nil && res.Duration > 0 { // this process may learn of the end later
		finished = min(finished, x.StartedAt.Add(micro.SpanOf(res.Duration)))
	}
	x.FinishedAt = finished
	data := map[string]any{"exec_id": x.ID}
	kind := sandbox.EventExecFinished
	switch {
	case runErr == nil:
		x.State = sandbox.ExecFinished
		x.ExitCode, x.TimedOut, x.OOMKilled = res.ExitCode, ledger.Flag(res.TimedOut), ledger.Flag(res.OOMKilled)
		data["exit_code"], data["seconds"] = res.ExitCode, micro.Span(finished-x.StartedAt).Duration().D().
			Round(time.Millisecond).Seconds()
		if res.TimedOut {
			data["timed_out"] = true
		}
		if res.OOMKilled {
			data["oom_killed"] = true
		}
	case x.CancelAt != 0 || left || s.Desired == ledger.Gone && s.Ending.By.EndedByRules():
		x.State, x.Error, kind = sandbox.ExecCancelled, whyCancelled(s, x, left), sandbox.EventExecCancelled
		data["reason"] = x.Error
	default:
		x.State, x.Error, kind = sandbox.ExecFailed, runErr.Error(), sandbox.EventExecFailed
		data["code"], data["error"] = sandbox.CodeOf(runErr), x.Error
	}
	if err := tx.AppendSandboxEvent(s, kind, data); err != nil {
		return err
	}
	if err := v.Sessions.SayEnd(tx, x); err != nil {
		return err
	}
	return execs.In(tx).SaveExec(x)
}

func whyCancelled(s *ledger.Sandbox, x *execs.Exec, left bool) string {
	switch {
	case x.CancelAt != 0:
		return "a caller cancelled it"
	case left:
		return "its caller disconnected"
	default:
		return fmt.Sprintf("its lease ended by %s", s.Ending.By)
	}
}
