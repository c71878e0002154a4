package helper

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// ErrUnknownCommand means that the sandbox does not know the command after its session was lost. The command was not
// started, or the sandbox was stopped since.
var ErrUnknownCommand = errors.New("the sandbox does not know the command")

// CarryOut makes a call over a channel. If the session of a command is lost, it follows the command from where the
// output broke off and sends the input again. If the sandbox has certainly not started the command, it repeats the
// request with the same id. Errors: as channel.Client's Call; ErrUnknownCommand.
func CarryOut(ctx context.Context, client *channel.Client, call Call) (wire.Result, error) {
	stdout, stderr := &counter{w: call.Stdout}, &counter{w: call.Stderr}
	streams := channel.Streams{Stdin: call.Stdin, Stdout: stdout, Stderr: stderr, Begins: call.Begins}
	if op := call.Request.Op; op != channel.OpExec && op != channel.OpVerify {
		return client.Call(ctx, call.Request, streams)
	}
	again := repetitionOf(call)
	streams.Stdin = again.stdin()
	res, err := client.Call(ctx, call.Request, streams)
	first := err
	for errors.Is(err, channel.ErrLost) && !errors.Is(err, channel.ErrGone) && ctx.Err() == nil {
		follow := channel.Request{Op: channel.OpFollow, ID: call.Request.ID, Follow: &channel.Follow{
			StdoutOffset: stdout.n.Load(), StderrOffset: stderr.n.Load(), Feeds: again.input != nil,
		}}
		lost := err
		streams.Stdin = again.stdin()
		res, err = client.Call(ctx, follow, streams)
		switch {
		case err != nil && !errors.Is(err, channel.ErrLost):
			return res, errors.Join(lost, err)
		case err != nil || res.Problem != wire.ProblemNotFound:
			continue
		}
		request, may := again.request(first)
		if !may || stdout.n.Load()+stderr.n.Load() > 0 {
			return res, errors.Join(lost, ErrUnknownCommand)
		}
		streams.Stdin = again.stdin()
		res, err = client.Call(ctx, request, streams)
		switch {
		case err == nil && res.Problem == wire.ProblemConflict: // it was started or is being started
			err = lost
		case err == nil && res.Problem == wire.ProblemNotFound:
			return res, errors.Join(lost, ErrUnknownCommand)
		}
	}
	return res, err
}

// repetition repeats a command whose session was lost before it started.
type repetition struct {
	of    channel.Request
	until time.Time
	// input is nil for a command without input.
	input *record
}

// repetitionOf must be called before the command is requested.
func repetitionOf(call Call) repetition {
	r := repetition{of: call.Request, until: time.Now().Add(channel.RepeatWithin)}
	if call.Stdin != nil {
		r.input = newRecord(call.Stdin)
	}
	return r
}

// stdin returns the input from its start, nil for a command without input.
func (r repetition) stdin() io.Reader {
	if r.input == nil {
		return nil
	}
	return r.input.again()
}

// request returns the repeated request, if a repetition is allowed after the first error.
func (r repetition) request(first error) (channel.Request, bool) {
	lost, ok := errors.AsType[*channel.Lost](first)
	if !ok || lost.Life == "" || r.input != nil && !r.input.whole() || time.Now().After(r.until) {
		return channel.Request{}, false
	}
	again := r.of
	again.Life = lost.Life
	return again, true
}

// counter counts the bytes that a stream accepted.
type counter struct {
	w io.Writer
	n atomic.Int64
}

// Write implements io.Writer.
func (c *counter) Write(p []byte) (n int, err error) {
	n = len(p)
	if c.w != nil {
		n, err = c.w.Write(p)
	}
	c.n.Add(int64(n))
	return n, err
}
