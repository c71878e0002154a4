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

// exec starts a command, transfers its input and output, and returns its result. If ctx ends, the command continues.
func (b *broker) exec(ctx context.Context, r channel.Request, in io.Reader, out *wire.Writer) wire.Result {
	if r.Life != "" && r.Life != b.cfg.Life {
		return wire.Result{
			Problem: wire.ProblemNotFound,
			Message: "the sandbox was restarted since the command was first requested",
		}
	}
	c, dir, err := b.resolve(r)
	if err != nil {
		return invalid(err.Error())
	}
	a := b.keeper.attach()
	defer b.keeper.detach(a)
	answer, err := b.keeper.ask(ctx, link.Message{
		Kind:       link.Start,
		ID:         r.ID,
		Op:         string(r.Op),
		Attachment: a.id,
		Flow:       !c.Process,
		Command:    &c,
		Files:      []*os.File{dir},
		Again:      r.Life != "",
		Feeds:      c.Stdin,
	})
	_ = dir.Close() // the keeper has its own
	if res, refused := refusal(answer, err); refused {
		return res
	}
	if answer.Began != nil {
		return channel.Repeated(r, recordOf(*answer.Began))
	}
	defer link.CloseAll(answer.Files)
	if c.Stdin {
		go b.feed(ctx, a, in) // ends with the stream, which the channel closes after this returns
	}
	if c.Process { // its log is only for followers
		return b.await(ctx, a)
	}
	rd := &commandReader{
		keeper: b.keeper,
		a:      a,
		head:   answer.Files[0],
		flow:   true,
		out:    out,
	}
	return b.finish(rd.run(ctx))
}

// feed passes input on until it ends or the command accepts no more. If the stream breaks, another one may send the
// rest.
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

// follow sends a command's output from an offset on, and its result.
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
		go b.feed(ctx, a, in) // ends with the stream, which the channel closes after this returns
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
		keeper: b.keeper, a: a, head: answer.Files[0], now: f.Now,
		next: [2]int64{f.StdoutOffset, f.StderrOffset}, out: out,
	}
	return b.finish(rd.run(ctx))
}

// await returns the result of a command.
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
		return fmt.Errorf("the caller is gone: %w", ctx.Err())
	}
}

// finish returns the result of a command with the state of its shell.
func (b *broker) finish(s link.Status, err error) wire.Result {
	switch {
	case err != nil:
		return failure(err)
	case s.Result == nil: // only existing output was requested
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

// commandReader sends a command's output. It reads the kept beginning and, with flow, the window after it.
type commandReader struct {
	keeper *parent
	a      *attachment
	head   *os.File
	parts  [link.Parts]*os.File // nil until needed
	flow   bool
	now    bool
	next   [2]int64
	out    *wire.Writer
}

func (r *commandReader) run(ctx context.Context) (link.Status, error) {
	defer r.close()
	for first := true; ; first = false {
		s := r.a.get()
		if r.now && first {
			if err := wait(ctx, r.a); err != nil { // the attachment delivers the state
				return s, err
			}
			s = r.a.get()
		}
		if s.Ended {
			r.out.Gather()
		}
		for i, out := range []io.Writer{r.out.Stdout(), r.out.Stderr()} {
			if err := r.send(ctx, i, out, s); err != nil {
				return s, fmt.Errorf("send the output: %w", err)
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

// send sends the new part of a stream.
func (r *commandReader) send(ctx context.Context, i int, out io.Writer, s link.Status) error {
	at := &r.next[i]
	if *at < min(s.Kept[i], link.Head) {
		if err := r.copy(i, out, r.head, int64(i)*link.Head+*at, min(s.Kept[i], link.Head)-*at); err != nil {
			return err
		}
	}
	if *at < s.Kept[i] {
		rest, err := r.part(ctx, link.Rest+link.Part(i))
		if err == nil {
			err = r.copy(i, out, rest, *at-link.Head, s.Kept[i]-*at)
		}
		if err != nil {
			return err
		}
	}
	for r.flow && *at < s.Total[i] {
		window, err := r.part(ctx, link.Window+link.Part(i))
		if err != nil {
			return err
		}
		from := *at % keeper.Window
		if err := r.copy(i, out, window, from, min(s.Total[i]-*at, keeper.Window-from)); err != nil {
			return err
		}
		m := link.Message{Kind: link.Read, Attachment: r.a.id, Offsets: r.next}
		if err := r.keeper.conn.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// copy sends n bytes of a file from an offset on, and moves on in the stream.
func (r *commandReader) copy(i int, out io.Writer, file *os.File, from, n int64) error {
	sent, err := io.Copy(out, io.NewSectionReader(file, from, n))
	r.next[i] += sent
	if err == nil && sent < n {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// part returns the file with a part of the output.
func (r *commandReader) part(ctx context.Context, p link.Part) (*os.File, error) {
	if r.parts[p] == nil {
		answer, err := r.keeper.ask(ctx, link.Message{Kind: link.Open, Attachment: r.a.id, Part: p})
		if err != nil {
			return nil, err
		}
		if answer.Problem != "" {
			return nil, errors.New(answer.Text)
		}
		r.parts[p] = answer.Files[0]
	}
	return r.parts[p], nil
}

func (r *commandReader) close() {
	for _, f := range r.parts {
		if f != nil {
			_ = f.Close() // it was only read
		}
	}
}

// followLog sends the new part of a log and its offset.
func (b *broker) followLog(ctx context.Context, a *attachment, file *os.File, f channel.Follow,
	out *wire.Writer) wire.Result {
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
