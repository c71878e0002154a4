package llm

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
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/wholefile"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// line is a line of the journal: the state of a call at that time.
type line struct {
	sandbox.LLMCall
	// Reserved are the most tokens that the call can use, for limits. It is 0 once the usage is known.
	Reserved int64 `json:"reserved_tokens,omitempty"`
}

// Limits of the journal. Unread lines are never removed.
const (
	defaultSegment = 4 << 20
	// defaultUnread is the size above which further calls are refused. The lines of running calls still fit.
	defaultUnread = 64 << 20
)

// journal keeps lines in files until a reader has recorded them elsewhere. A write without fsync survives the process;
// sync makes it survive the machine. The caller must serialize all methods except sync.
type journal struct {
	dir      string
	most     int64 // size of a segment
	run      int64
	segments []segments.Segment // in order; writes go to the last one
	file     *os.File
	line     int64
	read     segments.Position // recorded elsewhere

	syncing sync.Mutex // guards synced
	synced  int64      // last line that survives the machine
}

// openJournal opens the segments in a directory and begins a new run after all earlier ones.
func openJournal(dir string, most int64, now time.Time, after segments.Position) (*journal, error) {
	earlier, run, err := segments.Open(dir, now)
	if err != nil {
		return nil, fmt.Errorf("read the LLM journal: %w", err)
	}
	j := &journal{dir: dir, most: most, run: max(run, after.Run+1), segments: earlier}
	return j, j.begin()
}

// begin opens the next segment.
func (j *journal) begin() error {
	g, f, err := segments.Create(j.dir, j.position())
	if err != nil {
		return fmt.Errorf("begin a file of the LLM journal: %w", err)
	}
	if err := wholefile.Sync(j.dir); err != nil {
		return errors.Join(fmt.Errorf("begin a file of the LLM journal: %w", err), f.Close(), os.Remove(g.Path))
	}
	j.file, j.segments = f, append(j.segments, g)
	return nil
}

// append adds a line and returns its number in this run.
func (j *journal) append(l line) (int64, error) {
	b, err := json.Marshal(l)
	if err != nil {
		return 0, fmt.Errorf("encode an LLM call: %w", err)
	}
	if j.segments[len(j.segments)-1].Size >= j.most {
		if err := j.rotate(); err != nil {
			return 0, err
		}
	}
	g := &j.segments[len(j.segments)-1]
	if err := g.Append(j.file, append(b, '\n')); err != nil {
		return 0, errors.Join(fmt.Errorf("record an LLM call: %w", err), j.file.Truncate(g.Size))
	}
	j.line++
	return j.line, nil
}

// rotate begins a new segment. It syncs the old one, so that sync can ignore it.
func (j *journal) rotate() error {
	old := j.file
	if err := old.Sync(); err != nil {
		return fmt.Errorf("record LLM calls: %w", err)
	}
	if err := j.begin(); err != nil {
		return err
	}
	return old.Close()
}

// sync returns once a line is on disk. One fsync serves all waiting lines. current returns the file and the number of
// its last line.
func (j *journal) sync(wanted int64, current func() (*os.File, int64)) error {
	j.syncing.Lock()
	defer j.syncing.Unlock()
	if j.synced >= wanted {
		return nil
	}
	f, last := current()
	if err := f.Sync(); err != nil && !errors.Is(err, os.ErrClosed) { // rotate has synced a closed file
		return fmt.Errorf("write LLM calls to the disk: %w", err)
	}
	j.synced = last
	return nil
}

// decoded yields the calls in lines. If the machine failed before a line was on disk, the line may be unreadable. Its
// client got no answer.
func decoded(yield func(segments.Position, line)) func(segments.Position, []byte) {
	return func(at segments.Position, text []byte) {
		var l line
		if json.Unmarshal(text, &l) == nil {
			yield(at, l)
		}
	}
}

// position returns the position of the last line.
func (j *journal) position() segments.Position { return segments.Position{Run: j.run, Line: j.line} }

// confirm notes the position up to which lines are recorded elsewhere. It reports whether segments can be removed.
func (j *journal) confirm(p segments.Position) bool {
	if p.After(j.position()) { // of a previous journal
		return false
	}
	if p.After(j.read) {
		j.read = p
	}
	return len(j.segments) > 1 && !j.segments[0].End().After(j.read)
}

// prune removes segments that are recorded elsewhere and whose calls are in the stored sums.
func (j *journal) prune(stored segments.Position) error {
	for len(j.segments) > 1 && !j.segments[0].End().After(j.read) && !j.segments[0].End().After(stored) {
		if err := os.Remove(j.segments[0].Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove recorded LLM calls: %w", err)
		}
		j.segments = slices.Delete(j.segments, 0, 1)
	}
	return nil
}

// unread returns the size of the lines that are not recorded elsewhere. For a partly recorded file it is an estimate.
func (j *journal) unread() int64 {
	var n int64
	for _, g := range j.segments {
		switch {
		case g.Empty() || !g.End().After(j.read):
		case g.Run == j.read.Run && g.First <= j.read.Line:
			n += g.Size * (g.Last - j.read.Line) / (g.Last - g.First + 1)
		default:
			n += g.Size
		}
	}
	return n
}

func (j *journal) close() error { return errors.Join(j.file.Sync(), j.file.Close()) }
