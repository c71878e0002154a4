package backupfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/backupfile"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// backUp creates a ledger with one environment and a backup of it.
func backUp(t *testing.T, url string) (file string) {
	t.Helper()
	ledgertest.MakeEnvironment(t, ledgertest.Open(t, url, ledger.Options{}), "e")
	file = filepath.Join(t.TempDir(), "backup")
	c, err := backupfile.Take(t.Context(), url, file, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Environments != 1 || c.LedgerID == "" || c.TakenAt.IsZero() || c.File != file {
		t.Fatalf("the backup holds %+v", c)
	}
	return file
}

func wantCode(t *testing.T, what string, err error, code sandbox.Code, text string) {
	t.Helper()
	if sandbox.CodeOf(err) != code || err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v (%s), want %s: %s", what, err, sandbox.CodeOf(err), code, text)
	}
}

func TestABackupIsPrivateAndReplacesNothing(t *testing.T) {
	t.Parallel()
	for name, newURL := range ledgertest.Databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := newURL(t)
			file := backUp(t, url)
			info, err := os.Stat(file)
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the backup has mode %v, %v", info.Mode(), err)
			}
			_, err = backupfile.Take(t.Context(), url, file, ledger.Options{})
			wantCode(t, "another one to the same file", err, sandbox.Conflict, "is not overwritten")
			_, err = backupfile.Take(t.Context(), newURL(t), file+"2", ledger.Options{})
			wantCode(t, "one of no ledger", err, sandbox.NotFound, "no ledger")
			entries, err := os.ReadDir(filepath.Dir(file))
			if err != nil || len(entries) != 1 {
				t.Errorf("next to the backup there is %v, %v", entries, err)
			}
			_, err = backupfile.Restore(t.Context(), file, url, ledger.Options{})
			wantCode(t, "restoring over a ledger", err, sandbox.Conflict, "is not overwritten")
		})
	}
}

func TestWhatIsNoBackupIsRefused(t *testing.T) {
	t.Parallel()
	file := backUp(t, ledgertest.SQLiteURL(t))
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	damaged := slices.Clone(whole)
	for i := 5 * 4096; i < len(damaged); i++ {
		damaged[i] ^= 0x55
	}
	for what, content := range map[string][]byte{
		"empty":   {},
		"text":    []byte(strings.Repeat("not a ledger ", 1000)),
		"cut":     whole[:len(whole)/2],
		"damaged": damaged,
	} {
		broken := filepath.Join(t.TempDir(), "backup")
		if err := os.WriteFile(broken, content, 0o600); err != nil {
			t.Fatal(err)
		}
		url := ledgertest.SQLiteURL(t)
		_, err := backupfile.Restore(t.Context(), broken, url, ledger.Options{})
		wantCode(t, what, err, sandbox.Invalid, broken)
		if _, err := os.Stat(strings.TrimPrefix(url, "sqlite://")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a ledger was made of it: %v", what, err)
		}
	}
	url := ledgertest.SQLiteURL(t)
	if err := os.WriteFile(strings.TrimPrefix(url, "sqlite://")+"-wal", []byte("of another"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = backupfile.Restore(t.Context(), file, url, ledger.Options{})
	wantCode(t, "beside another ledger's log", err, sandbox.Conflict, "-wal")
}

// TestALedgerPutBackByOtherMeansKnowsIt: a repeated note adds no event until something else has happened.
func TestALedgerPutBackByOtherMeansKnowsIt(t *testing.T) {
	t.Parallel()
	for name, newURL := range ledgertest.Databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := newURL(t)
			_, err := backupfile.NoteRestored(t.Context(), url, ledger.Options{})
			wantCode(t, "where there is no ledger", err, sandbox.NotFound, "no ledger")
			served, err := ledger.Open(t.Context(), url, ledger.Options{})
			if err != nil {
				t.Fatal(err)
			}
			ledgertest.MakeEnvironment(t, served, "e")
			_, err = backupfile.NoteRestored(t.Context(), url, ledger.Options{})
			wantCode(t, "a ledger that is served", err, sandbox.Conflict, "in use")
			if err := served.Close(); err != nil {
				t.Fatal(err)
			}

			var moments []time.Time
			for range 2 {
				r, err := backupfile.NoteRestored(t.Context(), url, ledger.Options{})
				if err != nil || r.LedgerID != served.ID() {
					t.Fatalf("it is noted of %s (%v), want %s", r.LedgerID, err, served.ID())
				}
				moments = append(moments, r.At)
			}
			s := ledgertest.Open(t, url, ledger.Options{})
			var at micro.Time
			var told []sandbox.Event
			err = s.Read(t.Context(), func(tx *ledger.Tx) (err error) {
				if at, err = tx.RestoredAt(); err != nil {
					return err
				}
				told, err = tx.Events(sandbox.EventFilter{Type: string(sandbox.EventRestored)})
				return err
			})
			if err != nil || len(told) != 1 || !told[0].At.Equal(moments[0]) || !at.Time().Equal(moments[1]) ||
				string(told[0].Data) != "{}" {
				t.Errorf("it was restored at %s and tells %+v (%v); it was noted at %v", at.Time(), told, err, moments)
			}
		})
	}
}

// TestARestoreIsTimedByTheClockAfterItsSteps: a step since the backup moves the times in the backup, not that of the
// restore.
func TestARestoreIsTimedByTheClockAfterItsSteps(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		dir, h := t.TempDir(), ledgertest.NewHost()
		from, to := "sqlite://"+filepath.Join(dir, "a.db"), "sqlite://"+filepath.Join(dir, "b.db")
		file := filepath.Join(dir, "backup")
		idle := func(*ledger.Tx) error { return nil }
		s, shut := h.Open(t, from)
		if err := s.Write(t.Context(), idle); err != nil {
			t.Fatal(err)
		}
		shut()
		if _, err := backupfile.Take(t.Context(), from, file, h.Options()); err != nil {
			t.Fatal(err)
		}
		h.Step(step)
		if _, err := backupfile.Restore(t.Context(), file, to, h.Options()); err != nil {
			t.Fatal(err)
		}
		want := micro.At(h.Now())
		h.Pass(time.Minute)
		s, _ = h.Open(t, to)
		if err := s.Write(t.Context(), idle); err != nil {
			t.Fatal(err)
		}
		err := s.Read(t.Context(), func(tx *ledger.Tx) error {
			at, err := tx.RestoredAt()
			if at != want {
				t.Errorf("after a step of %v it was restored at %v, want %v", step, at.Time(), want.Time())
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
