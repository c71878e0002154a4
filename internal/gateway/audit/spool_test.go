package audit_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
)

func openSpool(t *testing.T, dir string, now time.Time) *audit.Spool {
	t.Helper()
	s, err := audit.OpenSpool(dir, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// write writes numbered lines from first to last, of a width that fills files.
func write(t *testing.T, s *audit.Spool, first, last, width int) {
	t.Helper()
	for n := first; n <= last; n++ {
		if _, err := fmt.Fprintf(s, `{"n":%d,"pad":%q}`+"\n", n, strings.Repeat("x", width)); err != nil {
			t.Fatal(err)
		}
	}
}

// readAll follows a spool to its end, like a reader that remembers its position.
func readAll(t *testing.T, s *audit.Spool, from audit.Position) (records []string, at audit.Position) {
	t.Helper()
	for at = from; ; {
		entries, err := s.After(at)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) == 0 {
			return records, at
		}
		for _, e := range entries {
			if !e.After(at) {
				t.Fatalf("%+v comes after %+v", e.Position, at)
			}
			at = e.Position
			number, _, _ := strings.Cut(strings.TrimPrefix(string(e.Record), `{"n":`), ",")
			records = append(records, number)
		}
	}
}

func TestAReaderContinuesWhereItWasAcrossRuns(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "attempts")
	now := time.Unix(1_800_000_000, 0)
	s := openSpool(t, dir, now)
	if got, _ := readAll(t, s, audit.Position{}); len(got) > 0 {
		t.Errorf("a new spool has %v", got)
	}
	write(t, s, 1, 2500, 10)
	got, at := readAll(t, s, audit.Position{})
	if len(got) != 2500 || got[0] != "1" || got[2499] != "2500" || at.Line != 2500 {
		t.Fatalf("%d lines, up to %+v", len(got), at)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// There is a crash in the middle of a line, and a clock that was set back.
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	f, err := os.OpenFile(files[0], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"n":2501,"pa`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s = openSpool(t, dir, now.Add(-time.Hour))
	write(t, s, 3000, 3001, 10)
	if got, at = readAll(t, s, at); fmt.Sprint(got) != "[3000 3001]" || at.Line != 2 {
		t.Errorf("after a new start: %v, at %+v", got, at)
	}
	if got, _ := readAll(t, s, audit.Position{}); len(got) != 2502 {
		t.Errorf("from the beginning: %d lines", len(got))
	}
}

func TestASpoolKeepsTheLatestAndShowsWhatIsMissing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "attempts")
	s := openSpool(t, dir, time.Now())
	const lines, width = 3000, 10_000 // 30 MB
	write(t, s, 1, lines, width)
	got, at := readAll(t, s, audit.Position{})
	if at.Line != lines || len(got) < 800 || len(got) > 1700 {
		t.Errorf("%d lines of %d are kept, up to %+v", len(got), lines, at)
	}
	var size int64
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if size > 17<<20 {
		t.Errorf("they take %d bytes", size)
	}
	entries, err := s.After(audit.Position{Run: at.Run, Line: 1})
	if err != nil || len(entries) == 0 || entries[0].Line < 1000 {
		t.Errorf("after what was removed comes %+v, %v", entries[0].Position, err)
	}
}

func TestAGatewayThatCrashesAgainAndAgainKeepsFewFiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "attempts")
	var s *audit.Spool
	for n := range 100 {
		s = openSpool(t, dir, time.Now())
		write(t, s, n, n, 10)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) > 64 {
		t.Errorf("%d files, %v", len(files), err)
	}
	if got, _ := readAll(t, s, audit.Position{}); got[len(got)-1] != "99" || len(got) < 60 {
		t.Errorf("%d lines are kept", len(got))
	}
}
