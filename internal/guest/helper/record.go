package helper

import (
	"errors"
	"io"
	"sync"
)

// maxRecorded limits the retained input, in bytes. A command with a longer input is not repeated.
const maxRecorded = 256 << 10

var errNotKept = errors.New("the input is too long to be sent again")

// record reads an input once, and retains its start so that it can be sent again.
type record struct {
	from io.Reader

	mu      sync.Mutex // guards the fields below
	more    *sync.Cond
	reading bool // a reader is waiting for the input
	kept    []byte
	read    int // bytes read from the input
	err     error
}

func newRecord(from io.Reader) *record {
	r := &record{from: from}
	r.more = sync.NewCond(&r.mu)
	return r
}

// whole reports whether everything read so far is retained.
func (r *record) whole() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.kept) == r.read
}

// again returns the input from its start. An earlier reader may still be waiting; this one then gets its
// bytes too.
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
		case p.at < r.read: // another reader got bytes that are not retained
			return 0, errNotKept
		case r.err != nil:
			return 0, r.err
		case !r.reading:
			return p.next(b)
		}
		r.more.Wait()
	}
}

// next continues to read. The caller must hold the lock.
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
