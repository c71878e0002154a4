//go:build linux

package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/keeper"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/output"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/shellstate"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// exec starts a command, passes its input and output on, and returns how it ended. When ctx ends, the command continues.
func (b *broker) exec(ctx context.Context, r channel.Request, in io.Reader, out *wire.Writer) wire.Result {
	if r.Life != "" && r.Life != b.cfg.Life {
		return wire.Result{Problem: wire.ProblemNotFound, Message: "the sandbox was started anew since the command was first asked for"}
	}
	c, lent, err := b.resolve(r)
	if err != nil {
		return invalid(err.Error())
	}
	a := b.keeper.attach()
	defer b.keeper.detach(a)
	answer, err := b.keeper.ask(ctx, link.Message{
		Kind: link.Start, ID: r.ID, Attachment: a.id, Flow: !c.Process, Command: &c, Files: lent, Again: r.Life != "", Feeds: c.Stdin,
	})
	link.CloseAll(lent) // the keeper has its own
	if res, refused := refusal(answer, err); refused {
		return res
	}
	defer link.CloseAll(answer.Files)
	if c.Stdin {
		go b.feed(ctx, a, in) // ends when the stream does, which the channel closes after this returns
	}
	if c.Process { // its log is for followers
		return b.await(ctx, a)
	}
	rd := &commandReader{keeper: b.keeper, a: a, files: answer.Files, flow: true, out: [2]io.Writer{out.Stdout(), out.Stderr()}}
	return b.finish(rd.run(ctx))
}

// feed passes input on until it ends or the command takes no more. When the stream breaks, the rest may come in another.
func (b *broker) feed(ctx context.Context, a *attachment, in io.Reader) {
	const most, ahead = 32 << 10, 128 << 10
	buf := make([]byte, most)
	for offset := int64(0); ; {
		n, err := in.Read(buf)
		m := link.Message{
			Kind: link.Input, Attachment: a.id, Offsets: [2]int64{offset}, Data: buf[:n],
			EOF: errors.Is(err, io.EOF), Cut: errors.Is(err, channel.ErrInput),
		}
		if sendErr := b.keeper.conn.Send(m); sendErr != nil || err != nil {
			return
		}
		offset += int64(n)
		for s := a.get(); offset-s.Taken > ahead || s.InputClosed; s = a.get() {
			if s.InputClosed {
				return
			}
			select {
			case <-a.taken:
			case <-ctx.Done():
				return
			}
		}
	}
}

// follow sends what a command has written from an offset on, and how it ended.
func (b *broker) follow(ctx context.Context, r channel.Request, in io.Reader, out *wire.Writer) wire.Result {
	f := *r.Follow
	a := b.keeper.attach()
	defer b.keeper.detach(a)
	answer, err := b.keeper.ask(ctx, link.Message{Kind: link.Attach, ID: r.ID, Attachment: a.id, Feeds: f.Feeds})
	if res, refused := refusal(answer, err); refused {
		return res
	}
	defer link.CloseAll(answer.Files)
	if f.Feeds {
		go b.feed(ctx, a, in) // ends when the stream does, which the channel closes after this returns
	}
	switch {
	case f.Quiet && f.Now:
		return wire.Result{}
	case f.Quiet:
		return b.await(ctx, a)
	case answer.Log:
		return b.followLog(ctx, a, answer.Files[0], f, out)
	}
	rd := &commandReader{
		keeper: b.keeper, a: a, files: answer.Files, now: f.Now,
		next: [2]int64{f.StdoutOffset, f.StderrOffset}, out: [2]io.Writer{out.Stdout(), out.Stderr()},
	}
	return b.finish(rd.run(ctx))
}

// await returns how a command ended.
func (b *broker) await(ctx context.Context, a *attachment) wire.Result {
	for {
		if s := a.get(); s.Ended {
			return b.finish(s, nil)
		}
		if err := wait(ctx, a); err != nil {
			return failure(err)
		}
	}
}

func wait(ctx context.Context, a *attachment) error {
	select {
	case <-a.changed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the caller has gone: %w", ctx.Err())
	}
}

// finish is the result of a command, with what its shell told.
func (b *broker) finish(s link.Status, err error) wire.Result {
	switch {
	case err != nil:
		return failure(err)
	case s.Result == nil: // all of it was wanted that is there
		return wire.Result{}
	}
	r := *s.Result
	if len(s.Raw) > 0 && !r.TimedOut {
		shell := shellstate.Collector{Began: s.Began}
		_, _ = shell.Write(s.Raw) // never fails
		r.Shell = shell.State(b.workingDirectory)
	}
	return r
}

// commandReader sends what a command writes. It reads the beginning, which is kept, and with flow the window behind it.
type commandReader struct {
	keeper *parent
	a      *attachment
	files  []*os.File // stdout, stderr and their windows
	flow   bool
	now    bool
	next   [2]int64
	out    [2]io.Writer
}

func (r *commandReader) run(ctx context.Context) (link.Status, error) {
	for first := true; ; first = false {
		s := r.a.get()
		if r.now && first {
			if err := wait(ctx, r.a); err != nil { // the state comes with the attachment
				return s, err
			}
			s = r.a.get()
		}
		for i := range r.out {
			if err := r.send(i, s); err != nil {
				return s, err
			}
		}
		switch {
		case r.now:
			s.Result = nil
			return s, nil
		case s.Ended:
			return s, nil
		}
		if err := wait(ctx, r.a); err != nil {
			return s, err
		}
	}
}

// send sends what a stream has that is new.
func (r *commandReader) send(i int, s link.Status) error {
	if r.next[i] < s.Kept[i] {
		n, err := io.Copy(r.out[i], io.NewSectionReader(r.files[i], r.next[i], s.Kept[i]-r.next[i]))
		r.next[i] += n
		if err != nil {
			return fmt.Errorf("send the output: %w", err)
		}
	}
	if !r.flow {
		return nil
	}
	for r.next[i] < s.Total[i] {
		at := r.next[i] % keeper.Window
		n, err := io.Copy(r.out[i], io.NewSectionReader(r.files[2+i], at, min(s.Total[i]-r.next[i], keeper.Window-at)))
		r.next[i] += n
		if err != nil {
			return fmt.Errorf("send the output: %w", err)
		}
		if n == 0 {
			return errors.New("send the output: its window is too short")
		}
		m := link.Message{Kind: link.Read, Attachment: r.a.id, Offsets: r.next}
		if err := r.keeper.conn.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// followLog sends the new part of a log, and says where that begins.
func (b *broker) followLog(ctx context.Context, a *attachment, file *os.File, f channel.Follow, out *wire.Writer) wire.Result {
	log, err := output.NewRingReader(file, f.StdoutOffset)
	if err == nil {
		err = log.Begin()
	}
	if err == nil {
		err = out.Begins(log.Next)
	}
	for err == nil {
		s := a.get()
		if err = sendLog(log, out); err != nil {
			break
		}
		if f.Now {
			return wire.Result{}
		}
		if s.Ended {
			return b.finish(s, nil)
		}
		err = wait(ctx, a)
	}
	return failure(err)
}

func sendLog(log *output.RingReader, out *wire.Writer) error {
	for {
		p, skipped, err := log.Read()
		switch {
		case err != nil:
			return err
		case skipped:
			err = out.Begins(log.Next)
		case len(p) == 0:
			return nil
		default:
			_, err = out.Stdout().Write(p)
		}
		if err != nil {
			return err
		}
	}
}
