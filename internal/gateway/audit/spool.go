package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Position names one line of a spool. Lines of a later run, and in a run later lines, are greater.
type Position struct {
	// Run is one life of the gateway. It grows from one to the next, and begins at its time in
	// nanoseconds, so that it also grows where the spool was lost.
	Run int64 `json:"run"`
	// Line counts the run's lines from 1, without gaps.
	Line int64 `json:"line"`
}

// After reports whether p comes after q.
func (p Position) After(q Position) bool { return p.Run > q.Run || p.Run == q.Run && p.Line > q.Line }

// Entry is a line of a spool and where it stands.
type Entry struct {
	Position
	Record json.RawMessage `json:"record"`
}

// Bounds of a spool. What is older is removed, whether it was read or not.
const (
	segmentBytes = 4 << 20
	spoolBytes   = 16 << 20
	maxSegments  = 64 // a gateway that crashes again and again makes many small ones
)

// Bounds of one reading.
const (
	MaxEntries    = 1000
	maxEntryBytes = 1 << 20
)

// Spool keeps the latest lines of a log in files, for readers that come later and know how far they
// are. It outlives the gateway's process and its container. It is safe for concurrent use.
type Spool struct {
	dir string
	run int64

	mu       sync.Mutex // guards what follows
	segments []segment  // in order; the last is being written
	file     *os.File
	line     int64
}

// segment is one file of a spool: whole lines of one run.
type segment struct {
	path        string
	run         int64
	first, last int64 // lines; last < first when it is empty
	size        int64
}

// OpenSpool begins a run after those that a directory holds, which it makes. nil means time.Now.
func OpenSpool(dir string, now func() time.Time) (*Spool, error) {
	if now == nil {
		now = time.Now
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of attempts: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the directory of attempts: %w", err)
	}
	s := &Spool{dir: dir, run: now().UnixNano()}
	for _, entry := range entries {
		g := segment{path: filepath.Join(dir, entry.Name())}
		if n, err := fmt.Sscanf(entry.Name(), "%d-%d.jsonl", &g.run, &g.first); n != 2 || err != nil {
			continue // it is none of ours
		}
		if err := g.count(); err != nil {
			return nil, fmt.Errorf("read earlier attempts: %w", err)
		}
		s.segments = append(s.segments, g)
		s.run = max(s.run, g.run+1)
	}
	slices.SortFunc(s.segments, func(a, b segment) int {
		if (Position{a.run, a.first}).After(Position{b.run, b.first}) {
			return 1
		}
		return -1
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	return s, s.begin()
}

// count finds out how much of a segment is whole.
func (g *segment) count() error {
	f, err := os.Open(g.path)
	if err != nil {
		return err
	}
	defer f.Close() // it was read only
	g.last = g.first - 1
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // what a crash cut short is left out
			return nil
		}
		if err != nil {
			return err
		}
		g.size += int64(len(line))
		g.last++
	}
}

// begin opens the next segment and removes what is too much. Its caller holds mu.
func (s *Spool) begin() error {
	g := segment{run: s.run, first: s.line + 1, last: s.line}
	g.path = filepath.Join(s.dir, fmt.Sprintf("%020d-%012d.jsonl", g.run, g.first))
	f, err := os.OpenFile(g.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("keep attempts: %w", err)
	}
	s.file, s.segments = f, append(s.segments, g)
	var total int64
	for _, g := range s.segments {
		total += g.size
	}
	for len(s.segments) > 1 && (total > spoolBytes-segmentBytes || len(s.segments) > maxSegments) {
		if err := os.Remove(s.segments[0].path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove old attempts: %w", err)
		}
		total -= s.segments[0].size
		s.segments = s.segments[1:]
	}
	return nil
}

// Write keeps one line, which p is, its end included.
func (s *Spool) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.segments[len(s.segments)-1]; g.size >= segmentBytes {
		if err := errors.Join(s.file.Close(), s.begin()); err != nil {
			return 0, err
		}
	}
	g := &s.segments[len(s.segments)-1]
	if _, err := s.file.WriteAt(p, g.size); err != nil { // what is there of it is overwritten by the next
		return 0, fmt.Errorf("keep an attempt: %w", err)
	}
	s.line++
	g.size, g.last = g.size+int64(len(p)), s.line
	return len(p), nil
}

// Close ends the run.
func (s *Spool) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file.Close()
}

// After returns the oldest lines after a position, in their order, MaxEntries at most; none when there
// are none yet. Lines that were removed before they were read show as a gap.
func (s *Spool) After(p Position) ([]Entry, error) {
	s.mu.Lock()
	segments := slices.Clone(s.segments)
	s.mu.Unlock()
	var found []Entry
	size := 0
	for _, g := range segments {
		if g.last < g.first || !(Position{g.run, g.last}).After(p) {
			continue
		}
		err := g.read(p, func(e Entry) bool {
			found = append(found, e)
			size += len(e.Record)
			return len(found) < MaxEntries && size < maxEntryBytes
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it has just been removed
			return nil, fmt.Errorf("read attempts: %w", err)
		}
		if len(found) >= MaxEntries || size >= maxEntryBytes {
			break
		}
	}
	return found, nil
}

// read yields the lines of a segment after a position, until yield returns false.
func (g segment) read(p Position, yield func(Entry) bool) error {
	f, err := os.Open(g.path)
	if err != nil {
		return err
	}
	defer f.Close() // it was read only
	r := bufio.NewReaderSize(io.LimitReader(f, g.size), 64<<10)
	for at := (Position{g.run, g.first}); at.Line <= g.last; at.Line++ {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return err
		}
		if at.After(p) && !yield(Entry{at, bytes.TrimSuffix(line, []byte("\n"))}) {
			return nil
		}
	}
	return nil
}
