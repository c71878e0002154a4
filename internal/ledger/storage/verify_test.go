package storage_test

import (
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const pageSize = 4096

// TestADamagedPageIsFoundAndNothingIsWritten writes random bytes over each page of a ledger in turn. Only damage to
// unused pages may stay undetected.
func TestADamagedPageIsFoundAndNothingIsWritten(t *testing.T) {
	t.Parallel()
	whole, unused := filledLedger(t)
	unknown := 0
	for page := range len(whole) / pageSize {
		path := filepath.Join(t.TempDir(), "ledger.db")
		damaged := append([]byte(nil), whole...)
		_, _ = rand.Read(damaged[page*pageSize : (page+1)*pageSize]) // never fails
		must(t, os.WriteFile(path, damaged, 0o600))
		s, err := ledger.Open(t.Context(), "sqlite://"+path, ledger.Options{})
		if err != nil {
			if sandbox.CodeOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "restore a backup") {
				t.Errorf("page %d: it is opened with %v", page, err)
			}
			continue
		}
		if err := s.Verify(t.Context()); err == nil {
			unknown++
		} else {
			wantDamaged(t, s, page)
		}
		must(t, s.Close())
	}
	if unknown > unused {
		t.Errorf("the damage of %d pages stays unknown, and %d pages of %d are unused", unknown, unused, len(whole)/pageSize)
	}
}

func wantDamaged(t *testing.T, s *ledger.Store, page int) {
	t.Helper()
	if fault, err := s.Fault(); fault != storage.FaultDamaged || !strings.Contains(fmt.Sprint(err), "restore a backup") {
		t.Errorf("page %d: its fault is %q, %v", page, fault, err)
	}
	if err := remember(t, s, "after"); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("page %d: a write returned %v", page, err)
	}
	if err := s.Ready(t.Context()); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("page %d: its readiness is %v", page, err)
	}
}

// filledLedger returns the content of a ledger with some hundred rows, and the number of its unused pages.
func filledLedger(t *testing.T) (content []byte, unused int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ledger.db")
	s := ledgertest.Open(t, "sqlite://"+path, ledger.Options{})
	must(t, s.Write(t.Context(), func(tx *ledger.Tx) error {
		for i := range 300 {
			id := fmt.Sprintf("environment-%03d", i)
			if err := ledgertest.Environment(tx, id); err != nil {
				return err
			}
			if err := tx.AppendEnvironmentEvent(id, sandbox.EventEnvironmentCreated, nil); err != nil {
				return err
			}
		}
		return nil
	}), s.Close())
	db, err := sql.Open("sqlite", path)
	must(t, err)
	must(t, db.QueryRowContext(t.Context(), "PRAGMA freelist_count").Scan(&unused), db.Close())
	content, err = os.ReadFile(path)
	must(t, err)
	return content, unused
}

// TestDamageThatAStatementMeetsIsKnownFromThenOn damages a page of an open ledger, and reads.
func TestDamageThatAStatementMeetsIsKnownFromThenOn(t *testing.T) {
	t.Parallel()
	whole, _ := filledLedger(t)
	path := filepath.Join(t.TempDir(), "ledger.db")
	must(t, os.WriteFile(path, whole, 0o600))
	s := ledgertest.Open(t, "sqlite://"+path, ledger.Options{})
	page := leafOf(t, whole)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt(make([]byte, pageSize), int64(page)*pageSize)
	must(t, err, f.Close())
	err = s.Read(t.Context(), func(tx *ledger.Tx) error {
		_, err := tx.Environments()
		if err == nil {
			_, err = tx.Events(sandbox.EventFilter{})
		}
		return err
	})
	if sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("reading a damaged table returned %v", err)
	}
	wantDamaged(t, s, page)
}

// leafOf returns a leaf page of a table: environments, or their events.
func leafOf(t *testing.T, content []byte) int {
	t.Helper()
	const leaf = 0x0d // of a table: https://www.sqlite.org/fileformat.html#b_tree_pages
	for page := range len(content) / pageSize {
		in := content[page*pageSize : (page+1)*pageSize]
		if in[0] == leaf && strings.Contains(string(in), "environment-150") {
			return page
		}
	}
	t.Fatal("no page holds environment-150")
	return 0
}

// TestAnIndexThatMissesRowsIsFoundByADoctor: its pages are intact, so only a comparison finds the damage.
func TestAnIndexThatMissesRowsIsFoundByADoctor(t *testing.T) {
	t.Parallel()
	whole, _ := filledLedger(t)
	path := filepath.Join(t.TempDir(), "ledger.db")
	must(t, os.WriteFile(path, whole, 0o600))
	url := "sqlite://" + path
	must(t, storage.Verify(t.Context(), url))
	db, err := sql.Open("sqlite", path)
	must(t, err)
	db.SetMaxOpenConns(1)
	for _, statement := range []string{ // replace the index by a partial one
		"CREATE TABLE part AS SELECT id, created_at FROM environments LIMIT 10",
		"CREATE INDEX part_index ON part (created_at)",
		"CREATE INDEX whole_index ON environments (created_at)", "PRAGMA writable_schema = ON",
		"UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master WHERE name = 'part_index') " +
			"WHERE name = 'whole_index'",
	} {
		_, err := db.ExecContext(t.Context(), statement)
		must(t, err)
	}
	must(t, db.Close())
	if err := storage.Verify(t.Context(), url); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("it was checked with %v", err)
	}
}
