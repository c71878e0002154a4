//go:build linux

package output

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// testRing returns a ring of a few bytes, and a reader that begins at an offset.
func testRing(t *testing.T, size, from int64) (*Ring, *RingReader) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() }) // a test may have closed it
	r, err := MakeRing(file, size)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := NewRingReader(file, from)
	if err != nil {
		t.Fatal(err)
	}
	return r, reader
}

func write(t *testing.T, r *Ring, text string) {
	t.Helper()
	if n, err := r.Write([]byte(text)); n != len(text) || err != nil {
		t.Fatal(n, err)
	}
}

// rest reads all available bytes, in the ring's pieces.
func rest(t *testing.T, r *RingReader) (text string, skipped bool) {
	t.Helper()
	for {
		p, gap, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		if len(p) == 0 && !gap {
			return text, skipped
		}
		text, skipped = text+string(p), skipped || gap
	}
}

func TestALogKeepsItsLatestBytesUnderTheirOffsets(t *testing.T) {
	t.Parallel()
	r, reader := testRing(t, 8, 0)
	for i, step := range []struct {
		write, read string
		skipped     bool
		Next        int64
	}{
		{"abc", "abc", false, 3},
		{"defghijk", "defghijk", false, 11}, // as much as it keeps, across its end
		{"", "", false, 11},
		{"lmnopqrstu", "nopqrstu", true, 21}, // more than it keeps
	} {
		write(t, r, step.write)
		if got, skipped := rest(t, reader); got != step.read || skipped != step.skipped || reader.Next != step.Next {
			t.Errorf("step %d: read %q to %d, skipped: %v; want %+v", i, got, reader.Next, skipped, step)
		}
	}
	if total, dropped := r.Counts(); total != 21 || !dropped {
		t.Errorf("%d bytes were written, dropped: %v", total, dropped)
	}
	for from, want := range map[int64]int64{0: 13, 13: 13, 20: 20, 21: 21, 99: 21} {
		late, err := NewRingReader(r.File, from)
		if err == nil {
			err = late.Begin()
		}
		if err != nil || late.Next != want {
			t.Errorf("who asks for byte %d begins with %d (%v), want %d", from, late.Next, err, want)
		}
	}
}

func TestALogThatCannotBeKeptContinuesOnceItCan(t *testing.T) {
	t.Parallel()
	r, reader := testRing(t, 8, 0)
	write(t, r, "abc")
	file := r.File
	broken, err := os.Open(file.Name()) // a file opened for reading cannot be written, as on a full disk
	if err != nil {
		t.Fatal(err)
	}
	defer broken.Close()
	r.File = broken
	write(t, r, "lost")
	r.File = file
	write(t, r, "de")
	if got, skipped := rest(t, reader); got != "de" || !skipped || reader.Next != 9 {
		t.Errorf("read %q to %d, skipped: %v", got, reader.Next, skipped)
	}
	if _, dropped := r.Counts(); !dropped {
		t.Error("nothing is said to be lost")
	}
}

// TestWhoReadsALogThatIsWrittenReadsNothingElse writes numbered lines through a ring that is far too small while others
// read: each line that they read is whole and has its offset.
func TestWhoReadsALogThatIsWrittenReadsNothingElse(t *testing.T) {
	t.Parallel()
	const lines, width = 20_000, 16
	r, _ := testRing(t, 1000, 0)
	line := func(i int64) string { return fmt.Sprintf("%0*d\n", width-1, i) }
	var readers sync.WaitGroup
	for range 2 {
		reader, err := NewRingReader(r.File, 0)
		if err != nil {
			t.Fatal(err)
		}
		readers.Go(func() {
			for reader.Next < lines*width {
				from := reader.Next
				p, _, err := reader.Read()
				if err != nil {
					t.Error(err)
					return
				}
				for i, b := range p {
					at := from + int64(i)
					if want := line(at / width)[at%width]; b != want {
						t.Errorf("byte %d is %q, want %q", at, b, want)
						return
					}
				}
			}
		})
	}
	for i := range int64(lines) {
		if n, err := r.Write([]byte(line(i))); n != width || err != nil {
			t.Fatal(n, err)
		}
	}
	readers.Wait()
}
