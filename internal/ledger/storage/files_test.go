package storage_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// remember stores an environment.
func remember(t *testing.T, s *ledger.Store, id string) error {
	t.Helper()
	return s.Write(t.Context(), func(tx *ledger.Tx) error { return ledgertest.Environment(tx, id) })
}

// wantRemembered checks the number of environments in the ledger at a path.
func wantRemembered(t *testing.T, path string, n int) {
	t.Helper()
	s := ledgertest.Open(t, "sqlite://"+path, ledger.Options{})
	err := s.Read(t.Context(), func(tx *ledger.Tx) error {
		found, err := tx.Environments()
		if len(found) != n {
			t.Errorf("%s holds %d environments, want %d", path, len(found), n)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// TestALedgerWhoseFilesAreGoneAcknowledgesNothing removes files of an open ledger. No later write is acknowledged, and
// acknowledged data is saved to another file.
func TestALedgerWhoseFilesAreGoneAcknowledgesNothing(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(path string) error{
		"deleted":              os.Remove,
		"replaced by a copy":   replaceByCopy,
		"directory deleted":    func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
		"log deleted":          func(path string) error { return os.Remove(path + "-wal") },
		"index of log deleted": func(path string) error { return os.Remove(path + "-shm") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "dir", "ledger.db")
			s := ledgertest.Open(t, "sqlite://"+path, ledger.Options{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
			must(t, remember(t, s, "before"))
			must(t, take(path))
			if err := remember(t, s, "after"); sandbox.CodeOf(err) != sandbox.Unavailable {
				t.Errorf("a write returned %v", err)
			}
			if err := s.Ready(t.Context()); sandbox.CodeOf(err) != sandbox.Unavailable {
				t.Errorf("its readiness is %v", err)
			}
			if fault, err := s.Fault(); fault != storage.FaultLost || err == nil {
				t.Errorf("its fault is %q, %v", fault, err)
			}
			wantRescued(t, path, "before") // the refused write may also have reached the old file in time
		})
	}
}

func replaceByCopy(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(path+".copy", content, 0o600), os.Rename(path+".copy", path))
}

// wantRescued waits for the saved file and checks that it has an environment.
func wantRescued(t *testing.T, path, id string) {
	t.Helper()
	var saved []string
	testwait.Until(t, time.Minute, "the file is saved", func() bool {
		var err error
		saved, err = filepath.Glob(path + ".rescued-*Z")
		must(t, err)
		if len(saved) != 1 {
			return false
		}
		info, err := os.Stat(saved[0])
		return err == nil && info.Size() > 0
	})
	s := ledgertest.Open(t, "sqlite://"+saved[0], ledger.Options{})
	must(t, s.Read(t.Context(), func(tx *ledger.Tx) error {
		_, err := tx.KnownEnvironment(id)
		return err
	}))
}

// TestALedgerThatIsPutBackContinues moves the file away and back.
func TestALedgerThatIsPutBackContinues(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	s := ledgertest.Open(t, "sqlite://"+path, ledger.Options{})
	must(t, os.Rename(path, path+".away"))
	if err := remember(t, s, "refused"); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("a write returned %v", err)
	}
	must(t, os.Rename(path+".away", path))
	must(t, remember(t, s, "stored"), s.Ready(t.Context()))
	if fault, err := s.Fault(); fault != storage.FaultNone || err != nil {
		t.Errorf("its fault is %q, %v", fault, err)
	}
}

// wantRefused checks that a ledger cannot be opened, with an error that contains words.
func wantRefused(t *testing.T, path string, code sandbox.Code, words string) {
	t.Helper()
	s, err := ledger.Open(t.Context(), "sqlite://"+path, ledger.Options{})
	if err == nil {
		_ = s.Close() // it should not have been opened
	}
	if sandbox.CodeOf(err) != code || !strings.Contains(fmt.Sprint(err), words) {
		t.Errorf("it was opened with %v, want %s and %q", err, code, words)
	}
}

func TestAnEmptyFileIsNoLedger(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	must(t, os.WriteFile(path, nil, 0o600))
	wantRefused(t, path, sandbox.Invalid, "is an empty file, but a ledger is never empty: restore a backup")
	if info, err := os.Stat(path); err != nil || info.Size() != 0 {
		t.Errorf("the file was changed: %v, %v", info, err)
	}
	if _, err := storage.Examine(t.Context(), "sqlite://"+path); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("it was examined with %v", err)
	}
}

func TestAProgramKilledWhileItMakesALedgerLeavesNone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	must(t, os.WriteFile(path+".new", []byte("half of a ledg"), 0o600))
	s := ledgertest.Open(t, "sqlite://"+path, ledger.Options{})
	must(t, remember(t, s, "e"))
	if _, err := os.Stat(path + ".new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the half-made file is left: %v", err)
	}
}

// TestALogWithoutItsLedgerIsKept: SQLite would apply the log to a new ledger in its place.
func TestALogWithoutItsLedgerIsKept(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	must(t, os.WriteFile(path+"-wal", []byte("changes"), 0o600))
	wantRefused(t, path, sandbox.Conflict, "restore the ledger's file")
	if content, err := os.ReadFile(path + "-wal"); err != nil || string(content) != "changes" {
		t.Errorf("the log is now %q, %v", content, err)
	}
}

func TestALedgerThatOthersCanReadIsRefused(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]fs.FileMode{"ledger.db": 0o644, "ledger.db-wal": 0o666, "ledger.db-shm": 0o640} {
		path := filepath.Join(t.TempDir(), "ledger.db")
		s := ledgertest.Open(t, "sqlite://"+path, ledger.Options{})
		must(t, os.Chmod(filepath.Join(filepath.Dir(path), name), mode))
		wantRefused(t, path, sandbox.Invalid, fmt.Sprintf("has mode %04o: only its owner may have access, run `chmod 600 %s`",
			mode, filepath.Join(filepath.Dir(path), name)))
		must(t, os.Chmod(filepath.Join(filepath.Dir(path), name), 0o600), s.Close())
		wantRemembered(t, path, 0)
	}
}
