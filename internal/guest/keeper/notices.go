//go:build linux

package keeper

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

const (
	// gathering is how long a change of a command's output may wait for the next one, or for the command's end. Most
	// commands end right after their output, and their readers are woken once.
	gathering = time.Millisecond
	// gathered is the size of a piece of output, in bytes, that does not wait: to read it takes time too.
	gathered = 4 << 10
)

// mark notifies the readers of a command of a change. A change that waits is sent with the next one, or after
// gathering.
func (k *keeper) mark(c *command, waits bool) {
	k.mu.Lock()
	s := k.session
	var readers []uint64
	for id, r := range k.readers {
		if r.c == c {
			readers = append(readers, id)
		}
	}
	k.mu.Unlock()
	if s == nil || len(readers) == 0 {
		return
	}
	s.mu.Lock()
	for _, id := range readers {
		s.dirty[id] = true
	}
	s.mu.Unlock()
	if waits {
		wake(s.soon)
	} else {
		wake(s.now)
	}
}

func wake(sender chan<- struct{}) {
	select {
	case sender <- struct{}{}:
	default: // it is already awake
	}
}

// notify sends how much of the disk limit is left, and the latest state of changed commands. While a send blocks, later
// changes are merged.
func (s *session) notify(gone <-chan struct{}) {
	var told *int64
	for {
		told = s.tellLeft(told)
		select {
		case <-gone:
			return
		case <-s.now:
		case <-s.soon:
			select {
			case <-gone:
				return
			case <-s.now:
			case <-time.After(gathering):
			}
		}
		s.mu.Lock()
		dirty := s.dirty
		s.dirty = map[uint64]bool{}
		s.mu.Unlock()
		for id := range dirty {
			s.k.guard("notify of a change", func() { s.tell(id) })
		}
	}
}

// tell sends the state of a reader's command.
func (s *session) tell(id uint64) {
	s.k.mu.Lock()
	r := s.k.readers[id]
	s.k.mu.Unlock()
	if r == nil {
		return
	}
	status := r.c.status()
	s.send(link.Message{Kind: link.State, Attachment: id, Status: &status})
}

func (s *session) send(m link.Message) {
	if err := s.conn.Send(m); err != nil {
		_ = s.conn.Close() // the next broker attaches again
	}
}

// measured notes how much of the disk limit is left, for the broker, which writes files. It does not wait for it.
func (k *keeper) measured(left int64) {
	k.mu.Lock()
	k.left = &left
	s := k.session
	k.mu.Unlock()
	if s != nil {
		wake(s.now)
	}
}

// tellLeft sends the last measurement of the disk unless it was told, and returns it.
func (s *session) tellLeft(told *int64) *int64 {
	s.k.mu.Lock()
	left := s.k.left
	s.k.mu.Unlock()
	if left != told {
		s.send(link.Message{Kind: link.Disk, Left: *left})
	}
	return left
}

// note handles a message about the journal.
func (k *keeper) note(m link.Message) link.Message {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.journal[m.ID]
	switch m.Kind {
	case link.Begin:
		return k.begin(m, r)
	case link.Done:
		if m.Result != nil {
			k.finished(m.ID, *m.Result)
		}
	case link.Forget:
		if r != nil && !r.Ended {
			delete(k.journal, m.ID)
		}
	}
	return link.Message{}
}

// finished records the result of an operation, and forgets the oldest. The caller must hold the lock.
func (k *keeper) finished(id string, result wire.Result) {
	r := k.journal[id]
	if r == nil || r.Ended {
		return
	}
	r.Ended, r.Result = true, result
	r.Result.Shell = nil
	r.Result.Message = r.Result.Message[:min(len(r.Result.Message), 1<<10)]
	k.done = append(k.done, id)
	if len(k.done) > journalled {
		delete(k.journal, k.done[0])
		k.past.add(k.done[0], time.Now())
		k.done = k.done[1:]
	}
}

// begin records the start of an operation, unless one with its id has begun. Kept commands count too: they
// outlive the broker that ran them.
func (k *keeper) begin(m link.Message, r *link.Record) link.Message {
	if c := k.commands[m.ID]; c != nil && (r == nil || !r.Ended) {
		known := link.Record{Op: "exec"}
		switch {
		case c.spec.Process:
			known.Op = "process"
		case c.spec.Verifier != nil:
			known.Op = "verify"
		}
		select {
		case <-c.ended:
			known.Ended, known.Result = true, *c.result
		default:
		}
		return link.Message{Began: &known}
	}
	if r != nil {
		copied := *r
		return link.Message{Began: &copied}
	}
	k.journal[m.ID] = &link.Record{Op: m.Op, Result: wire.Result{}}
	return link.Message{}
}
