package channel

import (
	"sync"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// Journal keeps which operations have begun and how they ended, so that an operation is carried out at most once. Its
// methods are safe for concurrent use. One that outlives the guest makes the promise outlive it too.
type Journal interface {
	// Begin records that an operation begins, before it returns: what is recorded outlives the guest where the journal does.
	// It returns nil, or what is recorded when one of that id has begun before.
	Begin(id string, op Op) (*Record, error)
	// End records the result of an operation that has begun.
	End(id string, result wire.Result) error
	// Forget takes an operation that was not carried out from the journal: it may begin again.
	Forget(id string) error
}

// Record is what a Journal knows of an operation.
type Record struct {
	Op Op
	// Ended: Result is its result. An operation that began and did not end is under way, or was when its guest ended.
	Ended  bool
	Result wire.Result
}

// journalled is how many ended operations the journal in memory remembers.
const journalled = 4096

// NewJournal returns a journal in memory. It remembers operations under way and the 4096 that ended last, which takes
// at most about 4 MiB: the texts of results are cut to 1 KiB.
func NewJournal() Journal { return &memory{records: map[string]*Record{}} }

type memory struct {
	mu      sync.Mutex
	records map[string]*Record
	ended   []string // a ring, the oldest at next once it is full
	next    int
}

// Begin implements Journal.
func (m *memory) Begin(id string, op Op) (*Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.records[id]; r != nil {
		prior := *r
		return &prior, nil
	}
	m.records[id] = &Record{Op: op}
	return nil, nil
}

// End implements Journal.
func (m *memory) End(id string, result wire.Result) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.records[id]
	if r == nil || r.Ended {
		return nil
	}
	r.Ended, r.Result = true, result
	r.Result.Shell = nil
	r.Result.Message = cut(result.Message, 1<<10)
	if len(m.ended) < journalled {
		m.ended = append(m.ended, id)
		return nil
	}
	delete(m.records, m.ended[m.next])
	m.ended[m.next] = id
	m.next = (m.next + 1) % journalled
	return nil
}

// Forget implements Journal.
func (m *memory) Forget(id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.records[id]; r != nil && !r.Ended {
		delete(m.records, id)
	}
	return nil
}
