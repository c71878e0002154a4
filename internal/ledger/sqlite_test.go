package ledger_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/location"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestMain(m *testing.M) {
	if url := os.Getenv("LEDGER_TEST_WRITER"); url != "" {
		writeForEver(url)
		return
	}
	goleak.VerifyTestMain(postgrestest.M(m))
}

func sqliteURL(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "ledger.db") }

var databases = map[string]func(t *testing.T) string{"SQLite": sqliteURL, "PostgreSQL": postgresURL}

func TestSQLite(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, sqliteURL)
}

// TestACommitReachesTheDisk: no test that kills a process can see whether the disk has what a commit wrote.
func TestACommitReachesTheDisk(t *testing.T) {
	t.Parallel()
	s, err := ledger.Open(t.Context(), sqliteURL(t), ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	const full = 2 // https://sqlite.org/pragma.html#pragma_synchronous
	for _, environment := range []string{"before", "after"} {
		if mode, err := s.Synchronous(); err != nil || mode != full {
			t.Errorf("synchronous is %d, want %d: %v", mode, full, err)
		}
		if err := s.Write(t.Context(),
			func(tx *ledger.Tx) error { return ledgertest.Environment(tx, environment) }); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFilesAreForTheirOwnerOnly(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	s, err := ledger.Open(t.Context(), "sqlite://"+filepath.Join(dir, "ledger.db"), ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := s.Write(t.Context(), func(tx *ledger.Tx) error { return ledgertest.Environment(tx, "e") }); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %o", e.Name(), info.Mode().Perm())
		}
	}
}

func TestAURLForPeopleHoldsNoPassword(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"postgres://u:secret@host/db":                      "postgres://u:xxxxx@host/db",
		"postgres://host/db?password=secret&search_path=s": "postgres://host/db?password=xxxxx&search_path=s",
		"sqlite:///var/lib/sandbox/ledger.db":              "sqlite:///var/lib/sandbox/ledger.db",
		"postgres://u:secret@host:port/db":                 "(not a URL)",
	} {
		if got := location.Redact(url); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestURLsThatCannotBeUsedAreRefused(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "ledger.db", "sqlite://relative/path.db", "sqlite:relative.db", "sqlite:///x.db?mode=memory", "mysql://host/db",
		"://",
	} {
		if _, err := ledger.Open(t.Context(), url, ledger.Options{}); sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("%q: %v", url, err)
		}
	}
}

func TestEventsThatAreNotRetainedAnyMoreAreSaidToBe(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.db")
	s, err := ledger.Open(t.Context(), "sqlite://"+path, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	var id string
	err = s.Write(t.Context(), func(tx *ledger.Tx) error {
		row := ledgertest.Sandbox(tx, "e", 1)
		id = row.ID
		for range 5 {
			if err := tx.AppendSandboxEvent(row, sandbox.EventRenewed, nil); err != nil {
				return err
			}
		}
		if err := ledgertest.Environment(tx, "e"); err != nil {
			return err
		}
		return tx.CreateSandbox(row)
	})
	if err != nil {
		t.Fatal(err)
	}
	execSQL(t, path, "DELETE FROM events WHERE sequence <= 3")
	for from, want := range map[int64]sandbox.Code{
		0: sandbox.EventSequenceExpired,
		2: sandbox.EventSequenceExpired,
		3: "",
		5: "",
	} {
		err := s.Read(t.Context(), func(tx *ledger.Tx) error {
			_, err := tx.Events(sandbox.EventFilter{SandboxID: id, FromSequence: from})
			return err
		})
		if sandbox.CodeOf(err) != want {
			t.Errorf("from %d: %v, want %q", from, err, want)
		}
	}
}

func execSQL(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// TestWhatWasAcknowledgedSurvivesSIGKILL kills a process that writes, and looks for every write of
// which that process had been told that it is durable.
func TestWhatWasAcknowledgedSurvivesSIGKILL(t *testing.T) {
	t.Parallel()
	for name, fresh := range databases {
		t.Run(name, func(t *testing.T) { t.Parallel(); surviveSIGKILL(t, fresh(t)) })
	}
}

func surviveSIGKILL(t *testing.T, url string) {
	acknowledged := make(map[string]bool)
	for range 5 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "LEDGER_TEST_WRITER="+url)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			acknowledged[lines.Text()] = true
			if n == 300 {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait() // killed, as wanted
	}
	s, err := ledger.Open(t.Context(), url, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	err = s.Read(t.Context(), func(tx *ledger.Tx) error {
		for id := range acknowledged {
			known, err := tx.Deliveries([]string{id})
			if err != nil {
				return err
			}
			if len(known) == 0 {
				t.Errorf("write %s was acknowledged and is lost", id)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(acknowledged) < 1500 {
		t.Errorf("only %d writes were tried", len(acknowledged))
	}
}

// writeForEver is the process that is killed: it says what was acknowledged.
func writeForEver(url string) {
	s, err := ledger.Open(context.Background(), url, ledger.Options{})
	if err != nil {
		panic(err)
	}
	var printing sync.Mutex
	for w := range 8 {
		go func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%d-%d-%d", os.Getpid(), w, i)
				err := s.Write(context.Background(), func(tx *ledger.Tx) error {
					_, err := tx.CreateDeliveries([]ledger.Delivery{{ID: id, Body: []byte(id), Status: sandbox.DeliveryUnmatched}})
					return err
				})
				if err != nil {
					panic(err)
				}
				printing.Lock()
				fmt.Println(id)
				printing.Unlock()
			}
		}()
	}
	select {}
}
