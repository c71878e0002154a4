//go:build linux

package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/files"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// parent is the broker's end of the link to process 1.
type parent struct {
	conn  *link.Conn
	space *files.Space

	mu      sync.Mutex // guards the fields below
	seq     uint64
	answers map[uint64]chan link.Message
	readers map[uint64]*attachment
	err     error // set once the link has ended
}

// attachment receives the state of a command for its reader.
type attachment struct {
	id      uint64
	changed chan struct{} // capacity 1, like taken
	taken   chan struct{}

	mu     sync.Mutex // guards the fields below
	status link.Status
}

func (a *attachment) set(s link.Status) {
	a.mu.Lock()
	a.status = s
	a.mu.Unlock()
	for _, wake := range []chan struct{}{a.changed, a.taken} {
		select {
		case wake <- struct{}{}:
		default: // its reader will look soon anyway
		}
	}
}

func (a *attachment) get() link.Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

func newParent(conn *link.Conn) *parent {
	return &parent{conn: conn, space: files.NewSpace(), answers: map[uint64]chan link.Message{},
		readers: map[uint64]*attachment{}}
}

// receive handles messages until the link ends, and returns why it ended.
func (k *parent) receive() error {
	for {
		m, err := k.conn.Receive()
		if err != nil {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.err = fmt.Errorf("the link to process 1 ended: %w", err)
			for _, to := range k.answers {
				close(to)
			}
			k.answers = nil
			return k.err
		}
		k.mu.Lock()
		to, reader := k.answers[m.Seq], k.readers[m.Attachment]
		if m.Kind == link.Answer {
			delete(k.answers, m.Seq)
		}
		k.mu.Unlock()
		switch {
		case m.Kind == link.Answer && to != nil:
			to <- m
		case m.Kind == link.State && reader != nil && m.Status != nil:
			reader.set(*m.Status)
		case m.Kind == link.Disk:
			k.space.Measured(m.Left)
		default:
			link.CloseAll(m.Files) // the asker is gone
		}
	}
}

// ask sends a message and returns its answer. It discards an answer that arrives after ctx has ended.
func (k *parent) ask(ctx context.Context, m link.Message) (link.Message, error) {
	to := make(chan link.Message, 1)
	k.mu.Lock()
	if k.answers == nil {
		defer k.mu.Unlock()
		return link.Message{}, k.err
	}
	k.seq++
	m.Seq = k.seq
	k.answers[m.Seq] = to
	k.mu.Unlock()
	if err := k.conn.Send(m); err != nil {
		return link.Message{}, err
	}
	select {
	case a, ok := <-to:
		if !ok {
			return a, errors.New("the link to process 1 ended")
		}
		return a, nil
	case <-ctx.Done():
		k.mu.Lock()
		delete(k.answers, m.Seq)
		k.mu.Unlock()
		select {
		case a := <-to:
			link.CloseAll(a.Files)
		default:
		}
		return link.Message{}, ctx.Err()
	}
}

// attach creates an attachment. detach ends it.
func (k *parent) attach() *attachment {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seq++
	a := &attachment{id: k.seq, changed: make(chan struct{}, 1), taken: make(chan struct{}, 1)}
	k.readers[a.id] = a
	return a
}

func (k *parent) detach(a *attachment) {
	k.mu.Lock()
	delete(k.readers, a.id)
	k.mu.Unlock()
	_ = k.conn.Send(link.Message{Kind: link.Detach, Attachment: a.id}) // a link that has ended has no attachments
}

// refusal converts an answer with a problem to a result.
func refusal(a link.Message, err error) (wire.Result, bool) {
	if err != nil {
		return wire.Result{Problem: wire.ProblemFailed, Message: err.Error()}, true
	}
	return wire.Result{Problem: a.Problem, Message: a.Text}, a.Problem != ""
}

// Begin, End and Forget make the keeper the channel's journal, so that the journal outlives the broker. The
// keeper itself records the start and end of commands.
func (k *parent) Begin(id string, op channel.Op) (*channel.Record, error) {
	if op.Runs() {
		return nil, nil
	}
	a, err := k.ask(context.Background(), link.Message{Kind: link.Begin, ID: id, Op: string(op)})
	if err != nil || a.Began == nil {
		return nil, err
	}
	known := recordOf(*a.Began)
	return &known, nil
}

func recordOf(r link.Record) channel.Record {
	return channel.Record{Op: channel.Op(r.Op), Ended: r.Ended, Result: r.Result}
}

// End implements channel.Journal.
func (k *parent) End(id string, op channel.Op, result wire.Result) error {
	if op.Runs() {
		return nil
	}
	_, err := k.ask(context.Background(), link.Message{Kind: link.Done, ID: id, Result: &result})
	return err
}

// Forget implements channel.Journal.
func (k *parent) Forget(id string, op channel.Op) error {
	if op.Runs() {
		return nil
	}
	_, err := k.ask(context.Background(), link.Message{Kind: link.Forget, ID: id})
	return err
}
