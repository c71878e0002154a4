// Package segments keeps numbered lines in files. A log is a directory of segments: files of complete lines that later
// readers find by their position. The lines survive the gateway's process and container.
package segments

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Position is the position of a line in a log. Positions grow with the run and, within a run, with the line.
type Position struct {
	// Run identifies one life of the gateway. A new log's first run is the time in nanoseconds. Each later run is greater,
	// even if the log is lost.
	Run int64 `json:"run"`
	// Line numbers the run's lines from 1, without gaps.
	Line int64 `json:"line"`
}

// After reports whether p comes after q.
func (p Position) After(q Position) bool { return p.Run > q.Run || p.Run == q.Run && p.Line > q.Line }

// Limits of a page.
const (
	MaxLines = 1000
	maxBytes = 1 << 20
)

// Segment is one file of a log: complete lines of one run.
type Segment struct {
	Path        string
	Run         int64
	First, Last int64 // lines; Last < First if it is empty
	Size        int64 // of its complete lines
}

// End returns the position of the last line.
func (g Segment) End() Position { return Position{g.Run, g.Last} }

// Empty reports whether the segment has no line.
func (g Segment) Empty() bool { return g.Last < g.First }

// Open returns the segments in a directory in order, and the next run. It creates the directory if needed.
func Open(dir string, now time.Time) (all []Segment, run int64, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, 0, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, 0, err
	}
	run = now.UnixNano()
	for _, entry := range entries {
		g := Segment{Path: filepath.Join(dir, entry.Name())}
		if n, err := fmt.Sscanf(entry.Name(), "%d-%d.jsonl", &g.Run, &g.First); n != 2 || err != nil {
			continue // not one of our files
		}
		if err := g.count(); err != nil {
			return nil, 0, err
		}
		all = append(all, g)
		run = max(run, g.Run+1)
	}
	slices.SortFunc(all, func(a, b Segment) int {
		if (Position{a.Run, a.First}).After(Position{b.Run, b.First}) {
			return 1
		}
		return -1
	})
	return all, run, nil
}

// count finds the complete part of a segment.
func (g *Segment) count() error {
	f, err := os.Open(g.Path)
	if err != nil {
		return err
	}
	defer f.Close() // read only
	g.Last = g.First - 1
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) { // ignore a line that a crash cut short
			return nil
		}
		if err != nil {
			return err
		}
		g.Size += int64(len(line))
		g.Last++
	}
}

// Create creates the segment that follows the last line of a run. The caller closes the file.
func Create(dir string, last Position) (Segment, *os.File, error) {
	g := Segment{Run: last.Run, First: last.Line + 1, Last: last.Line}
	g.Path = filepath.Join(dir, fmt.Sprintf("%020d-%012d.jsonl", g.Run, g.First))
	f, err := os.OpenFile(g.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	return g, f, err
}

// Append writes one line with its newline to the segment's file. After an error, the next line overwrites the partial
// one.
func (g *Segment) Append(to *os.File, line []byte) error {
	if _, err := to.WriteAt(line, g.Size); err != nil {
		return err
	}
	g.Size += int64(len(line))
	g.Last++
	return nil
}

// ReadAll yields all lines after a position, in order.
func ReadAll(all []Segment, p Position, yield func(Position, []byte)) error {
	return read(all, p, func(at Position, line []byte) bool { yield(at, line); return true })
}

// ReadPage yields a page of the oldest lines after a position, in order. It yields none if there are none yet.
func ReadPage(all []Segment, p Position, yield func(Position, []byte)) error {
	n, size := 0, 0
	return read(all, p, func(at Position, line []byte) bool {
		yield(at, line)
		n, size = n+1, size+len(line)
		return n < MaxLines && size < maxBytes
	})
}

// read yields lines until yield returns false. It skips the lines of a segment that was just removed.
func read(all []Segment, p Position, yield func(Position, []byte) bool) error {
	for _, g := range all {
		if g.Empty() || !g.End().After(p) {
			continue
		}
		more, err := g.read(p, yield)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil && !more {
			return nil
		}
	}
	return nil
}

func (g Segment) read(p Position, yield func(Position, []byte) bool) (more bool, err error) {
	f, err := os.Open(g.Path)
	if err != nil {
		return false, err
	}
	defer f.Close() // read only
	r := bufio.NewReaderSize(io.LimitReader(f, g.Size), 64<<10)
	for at := (Position{g.Run, g.First}); at.Line <= g.Last; at.Line++ {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return false, err
		}
		if at.After(p) && !yield(at, bytes.TrimSuffix(line, []byte("\n"))) {
			return false, nil
		}
	}
	return true, nil
}
