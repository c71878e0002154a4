package helper

import (
	"errors"
	"io"
	"sync"
)

// maxRecorded bounds what is kept of an input, in bytes. A command with a longer one is not asked for again.
const maxRecorded = 256 << 10

var errNotKept = errors.New("the input is too long to be sent again")

// record reads an input once, and keeps its beginning so that it can be sent again.
type record struct {
	from io.Reader

	mu      sync.Mutex // guards what follows
	more    *sync.Cond
	reading bool // a reader waits for the input
	kept    []byte
	read    int // how much of the input was read
	err     error
}

func newRecord(from io.Reader) *record {
	r := &record{from: from}
	r.more = sync.NewCond(&r.mu)
	return r
}

// whole tells whether all that was read so far is kept.
func (r *record) whole() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.kept) == r.read
}

// again returns the input from its beginning. A reader of before may still wait: what it gets is for this one too.
func (r *record) again() io.Reader { return &replay{record: r} }

// replay is one reading of a record.
type replay struct {
	*record
	at int
}

// Read implements io.Reader.
func (p *replay) Read(b []byte) (int, error) {
	r := p.record
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		switch {
		case p.at < len(r.kept):
			n := copy(b, r.kept[p.at:])
			p.at += n
			return n, nil
		case p.at < r.read: // another reader got what is not kept
			return 0, errNotKept
		case r.err != nil:
			return 0, r.err
		case !r.reading:
			return p.next(b)
		}
		r.more.Wait()
	}
}

// next reads on. The caller holds the lock.
func (p *replay) next(b []byte) (int, error) {
	r := p.record
	r.reading = true
	r.mu.Unlock()
	n, err := r.from.Read(b)
	r.mu.Lock()
	r.reading = false
	if len(r.kept) == r.read && r.read+n <= maxRecorded {
		r.kept = append(r.kept, b[:n]...)
	}
	r.read += n
	p.at += n
	r.err = err
	r.more.Broadcast()
	return n, err
}
