package ledger_test

import (
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(postgrestest.M(m)) }

func TestSQLite(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, ledgertest.SQLiteURL)
}

func TestPostgreSQL(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, ledgertest.PostgresURL)
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
	ledgertest.ExecSQL(t, path, "DELETE FROM events WHERE sequence <= 3")
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
