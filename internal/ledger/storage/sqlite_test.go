package storage_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/deliveries"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
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

// TestACommitReachesTheDisk checks SQLite's setting, because a test that kills a process cannot see whether a commit
// has reached the disk.
func TestACommitReachesTheDisk(t *testing.T) {
	t.Parallel()
	s, err := ledger.Open(t.Context(), ledgertest.SQLiteURL(t), ledger.Options{})
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

// TestWhatWasAcknowledgedSurvivesSIGKILL kills a process that writes, and looks for every write that was acknowledged
// to it as durable.
func TestWhatWasAcknowledgedSurvivesSIGKILL(t *testing.T) {
	t.Parallel()
	for name, fresh := range ledgertest.Databases {
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
		_ = cmd.Wait() // killed on purpose
	}
	s, err := ledger.Open(t.Context(), url, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	err = s.Read(t.Context(), func(tx *ledger.Tx) error {
		for id := range acknowledged {
			known, err := deliveries.In(tx).Known([]deliveries.Key{{ID: id}})
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

// writeForEver is the process that is killed. It prints each acknowledged write.
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
					_, err := deliveries.In(tx).Create([]deliveries.Delivery{{ID: id, Body: []byte(id), Status: sandbox.DeliveryUnmatched}})
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
