package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/segments"
)

// Position is the position of a line in a spool.
type Position = segments.Position

// Entry is a line of a spool with its position.
type Entry struct {
	Position
	Record json.RawMessage `json:"record"`
}

// Limits of a spool. It removes the oldest lines, even unread ones.
const (
	segmentBytes = 4 << 20
	spoolBytes   = 16 << 20
	maxSegments  = 64 // a gateway that crashes repeatedly creates many small segments
)

// Spool keeps the latest lines of a log in files, for readers that come later and know their position. The files
// survive the gateway's process and container. Spool is safe for concurrent use.
type Spool struct {
	dir string
	run int64

	mu       sync.Mutex         // guards what follows
	segments []segments.Segment // in order; writes go to the last one
	file     *os.File
	line     int64
}

// OpenSpool begins a new run in a directory, which it creates if needed. A nil now means time.Now.
func OpenSpool(dir string, now func() time.Time) (*Spool, error) {
	if now == nil {
		now = time.Now
	}
	earlier, run, err := segments.Open(dir, now())
	if err != nil {
		return nil, fmt.Errorf("read earlier attempts: %w", err)
	}
	s := &Spool{dir: dir, run: run, segments: earlier}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s, s.begin()
}

// begin opens the next segment and removes surplus ones. The caller must hold mu.
func (s *Spool) begin() error {
	g, f, err := segments.Create(s.dir, Position{Run: s.run, Line: s.line})
	if err != nil {
		return fmt.Errorf("store attempts: %w", err)
	}
	s.file, s.segments = f, append(s.segments, g)
	var total int64
	for _, g := range s.segments {
		total += g.Size
	}
	for len(s.segments) > 1 && (total > spoolBytes-segmentBytes || len(s.segments) > maxSegments) {
		if err := os.Remove(s.segments[0].Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove old attempts: %w", err)
		}
		total -= s.segments[0].Size
		s.segments = s.segments[1:]
	}
	return nil
}

// Write stores p, which is one line with its newline.
func (s *Spool) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.segments[len(s.segments)-1]; g.Size >= segmentBytes {
		if err := errors.Join(s.file.Close(), s.begin()); err != nil {
			return 0, err
		}
	}
	if err := s.segments[len(s.segments)-1].Append(s.file, p); err != nil {
		return 0, fmt.Errorf("store an attempt: %w", err)
	}
	s.line++
	return len(p), nil
}

// Close ends the run.
func (s *Spool) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file.Close()
}

// After returns a page of the oldest lines after a position, in order. It returns none if there are none yet. Lines
// that were removed unread show as a gap.
func (s *Spool) After(p Position) ([]Entry, error) {
	s.mu.Lock()
	all := slices.Clone(s.segments)
	s.mu.Unlock()
	var found []Entry
	err := segments.ReadPage(all, p, func(at Position, line []byte) { found = append(found, Entry{at, line}) })
	if err != nil {
		return nil, fmt.Errorf("read attempts: %w", err)
	}
	return found, nil
}
