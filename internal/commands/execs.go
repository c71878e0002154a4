package commands

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/output"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// execOf returns a command of a lease, and the sequence of its sandbox's last event.
func execOf(tx *ledger.Tx, r sandbox.ExecRef) (*execs.Exec, int64, error) {
	if _, _, err := sandbox.ParseLeaseID(r.LeaseID); err != nil {
		return nil, 0, err
	}
	x, err := execs.In(tx).Exec(r.ID)
	if err != nil {
		return nil, 0, err
	}
	if x == nil || x.LeaseID != r.LeaseID {
		return nil, 0, sandbox.Errorf(sandbox.NotFound, "lease %s has no command %s, or it is no longer kept",
			r.LeaseID, r.ID).WithReason(sandbox.ReasonExecNotFound)
	}
	s, err := lifecycle.MustSandbox(tx, x.SandboxID)
	if err != nil {
		return nil, 0, err
	}
	return x, s.LastSequence, nil
}

func (v *Service) readExecRow(ctx context.Context, r sandbox.ExecRef) (x *execs.Exec, err error) {
	err = v.Store.Read(ctx, func(tx *ledger.Tx) (err error) {
		x, _, err = execOf(tx, r)
		return err
	})
	return x, err
}

// GetExec implements service.Execs.
func (v *Service) GetExec(ctx context.Context, r sandbox.ExecRef) (view sandbox.Exec, err error) {
	err = v.Store.Read(ctx, func(tx *ledger.Tx) error {
		x, last, err := execOf(tx, r)
		if err == nil {
			view = x.Domain(last)
		}
		return err
	})
	return view, err
}

// ListExecs implements service.Execs.
func (v *Service) ListExecs(ctx context.Context, f sandbox.ExecFilter) (list []sandbox.Exec, err error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	err = v.Store.Read(ctx, func(tx *ledger.Tx) error {
		if _, _, err := lifecycle.CurrentOf(tx, f.LeaseID); err != nil {
			return err
		}
		rows, err := execs.In(tx).ListExecs(f)
		if err != nil {
			return err
		}
		last := make(map[string]int64)
		for i := range rows {
			id := rows[i].SandboxID
			if _, ok := last[id]; !ok {
				s, err := lifecycle.MustSandbox(tx, id)
				if err != nil {
					return err
				}
				last[id] = s.LastSequence
			}
			list = append(list, rows[i].Domain(last[id]))
		}
		return nil
	})
	return list, err
}

// cancelPause is the pause before a cancelled command is ended again: it may only just be starting.
const cancelPause = time.Second

// CancelExec implements service.Execs.
func (v *Service) CancelExec(ctx context.Context, r sandbox.ExecRef) (sandbox.Exec, error) {
	var x *execs.Exec
	var s *ledger.Sandbox
	err := v.Store.Write(ctx, func(tx *ledger.Tx) (err error) {
		if x, _, err = execOf(tx, r); err != nil {
			return err
		}
		if s, err = lifecycle.MustSandbox(tx, x.SandboxID); err != nil || x.State != sandbox.ExecRunning || x.CancelAt != 0 {
			return err
		}
		x.CancelAt = tx.Now
		return execs.In(tx).SaveExec(x)
	})
	if err != nil {
		return sandbox.Exec{}, err
	}
	for x.State == sandbox.ExecRunning {
		changed := v.Store.Changed()
		if err := v.Core.EndRun(ctx, s, runOf(x)); err != nil {
			return sandbox.Exec{}, err
		}
		if x, err = v.readExecRow(ctx, r); err != nil {
			return sandbox.Exec{}, err
		}
		switch {
		case x.State != sandbox.ExecRunning:
		case x.HeldUntil <= micro.At(v.Store.Now()) && !isBeingMade(s):
			err = v.takeOver(ctx, x.ID)
		default:
			err = v.Core.Pause(ctx, changed, micro.At(v.Store.Now().Add(cancelPause)))
		}
		if err != nil {
			return sandbox.Exec{}, err
		}
	}
	return v.GetExec(ctx, r)
}

func runOf(x *execs.Exec) lifecycle.Run {
	return lifecycle.Run{
		ID: x.ID, SandboxID: x.SandboxID, User: x.User(), About: lifecycle.AboutLease(x.LeaseID, x.SandboxID),
	}
}

// ReadExec implements service.Execs.
func (v *Service) ReadExec(ctx context.Context, o sandbox.OutputRequest) (io.ReadCloser, error) {
	var f []sandbox.Field
	if o.Stream != sandbox.Stdout && o.Stream != sandbox.Stderr {
		f = append(f, sandbox.Field{Name: "stream", Problem: "must be stdout or stderr"})
	}
	if o.Offset < 0 {
		f = append(f, sandbox.Field{Name: "offset", Problem: "must not be negative"})
	}
	if err := sandbox.InvalidFields("exec output", f); err != nil {
		return nil, err
	}
	x, err := v.readExecRow(ctx, o.ExecRef)
	if err != nil {
		return nil, err
	}
	if x.State != sandbox.ExecRunning {
		return v.Outputs.Open(ctx, x, o.Stream, o.Offset)
	}
	ctx, cancel := context.WithCancel(ctx)
	out, in := io.Pipe()
	r := output.NewReader(out, cancel)
	replay := sandbox.Replay{
		ID:           x.ID,
		Now:          !o.Follow,
		Stdout:       in,
		StdoutOffset: o.Offset,
		StderrOffset: sandbox.MaxKeptOutput,
	}
	if o.Stream == sandbox.Stderr {
		replay = sandbox.Replay{
			ID:           x.ID,
			Now:          !o.Follow,
			Stderr:       in,
			StderrOffset: o.Offset,
			StdoutOffset: sandbox.MaxKeptOutput,
		}
	}
	go func() { // ends with the reader, which waits for it
		defer r.End()
		_, err := v.replay(ctx, o.ExecRef, replay)
		in.CloseWithError(err) // nil means EOF
	}()
	return r, nil
}

// replay passes on the command's output: with want.Now, what exists; otherwise until the recorded end of the command.
// It needs no claim, so any number of callers may follow a command.
func (v *Service) replay(ctx context.Context, r sandbox.ExecRef, want sandbox.Replay) (*execs.Exec, error) {
	stdout := output.Counted{W: want.Stdout, At: &want.StdoutOffset}
	stderr := output.Counted{W: want.Stderr, At: &want.StderrOffset}
	for tries := int64(1); ; tries++ {
		changed := v.Store.Changed()
		x, err := v.readExecRow(ctx, r)
		if err != nil {
			return nil, err
		}
		if x.State != sandbox.ExecRunning {
			return x, errors.Join(v.passRest(ctx, x, sandbox.Stdout, stdout), v.passRest(ctx, x, sandbox.Stderr, stderr))
		}
		live := want
		live.Stdout, live.Stderr = stdout, stderr
		err = v.followLive(ctx, x, live)
		if want.Now && sandbox.ReasonOf(err) == sandbox.ReasonExecNotFound {
			return x, nil // it is about to begin
		}
		if want.Now || ctx.Err() != nil {
			return x, err
		}
		until := v.Store.Now().Add(lifecycle.ClaimTTL) // its end is about to be recorded
		if err != nil {
			until = v.Store.Now().Add(lifecycle.Backoff(tries))
		}
		if err := v.Core.Pause(ctx, changed, micro.At(until)); err != nil {
			return nil, err
		}
	}
}

// followLive reads a command in its sandbox.
func (v *Service) followLive(ctx context.Context, x *execs.Exec, r sandbox.Replay) error {
	var s *ledger.Sandbox
	err := v.Store.Read(ctx, func(tx *ledger.Tx) (err error) {
		s, err = lifecycle.MustSandbox(tx, x.SandboxID)
		return err
	})
	if err != nil {
		return err
	}
	backend, h, err := v.Core.On(s)
	if err != nil {
		return err
	}
	_, err = backend.Follow(ctx, h, r)
	return err
}

// passRest passes on the kept rest of a stream. Of dropped output it passes nothing: the result says that it is
// truncated.
func (v *Service) passRest(ctx context.Context, x *execs.Exec, stream sandbox.ExecStream, to output.Counted) error {
	if to.W == nil || x.DroppedAt != 0 {
		return nil
	}
	r, err := v.Outputs.Open(ctx, x, stream, *to.At)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, r)
	return errors.Join(err, r.Close())
}

// rejoin returns the output and the result of a command that an earlier equal request began.
func (v *Service) rejoin(ctx context.Context, known *execs.Exec, req sandbox.ExecRequest) (sandbox.ExecResult, error) {
	req, err := req.Normalize()
	if err != nil {
		return sandbox.ExecResult{}, err
	}
	rec := output.NewRecording(req, false)
	defer rec.Discard()
	x, err := v.replay(ctx, sandbox.ExecRef{LeaseID: known.LeaseID, ID: known.ID}, rec.Replay(known.ID))
	if err != nil {
		return sandbox.ExecResult{}, err
	}
	res := sandbox.ExecResult{
		ExecID:      x.ID,
		ExitCode:    x.ExitCode,
		Duration:    micro.Span(x.FinishedAt - x.StartedAt).Duration(),
		TimedOut:    bool(x.TimedOut),
		OOMKilled:   bool(x.OOMKilled),
		StdoutBytes: x.Stdout.Bytes,
		StderrBytes: x.Stderr.Bytes,
	}
	rec.Fill(&res)
	res.Truncated = res.Truncated || x.Stdout.Kept < x.Stdout.Bytes || x.Stderr.Kept < x.Stderr.Bytes
	switch x.State {
	case sandbox.ExecCancelled:
		return sandbox.ExecResult{}, errCancelled(x)
	case sandbox.ExecFailed:
		return sandbox.ExecResult{}, sandbox.Errorf(sandbox.Failed, "command %s: %s", x.ID, x.Error).
			WithReason(sandbox.ReasonExecFailed)
	default:
		return res, nil
	}
}
