package channel

import (
	"sync"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// Journal records which operations have begun and how they ended, so that an operation is carried out at most once. Its
// methods are safe for concurrent use. If the journal outlives the guest, so does this promise. It may omit operations
// that a Handler itself refuses to repeat.
type Journal interface {
	// Begin records the start of an operation before it returns. It returns nil, or the existing record if an
	// operation with that id has begun.
	Begin(id string, op Op) (*Record, error)
	// End records the result of an operation that has begun.
	End(id string, op Op, result wire.Result) error
	// Forget removes an operation that was not carried out: it may begin again.
	Forget(id string, op Op) error
}

// Record is a Journal's record of an operation.
type Record struct {
	Op Op
	// Ended means that Result is the result. Otherwise the operation is running, or was running when its guest ended.
	Ended  bool
	Result wire.Result
}

// journalled is the number of ended operations in the memory journal.
const journalled = 4096

// NewJournal returns a journal in memory. It holds running operations and the latest 4096 ended ones, in at
// most about 4 MiB: it cuts the texts of results to 1 KiB.
func NewJournal() Journal { return &memory{records: map[string]*Record{}} }

type memory struct {
	mu      sync.Mutex
	records map[string]*Record
	ended   []string // a ring; once full, the oldest is at next
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
func (m *memory) End(id string, _ Op, result wire.Result) error {
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
func (m *memory) Forget(id string, _ Op) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.records[id]; r != nil && !r.Ended {
		delete(m.records, id)
	}
	return nil
}
