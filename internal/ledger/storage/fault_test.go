package storage_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestWhatPostgreSQLSaysOfItselfIsAFault makes the server refuse some rows with the codes of a full disk, a standby and
// a damaged page.
func TestWhatPostgreSQLSaysOfItselfIsAFault(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]storage.Fault{
		"53100": storage.FaultFull,
		"25006": storage.FaultReadOnly,
		"XX001": storage.FaultDamaged,
		"XX002": storage.FaultDamaged,
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			url := postgrestest.New(t)
			var passed atomic.Int64
			began := time.Now()
			s := ledgertest.Open(t, url, ledger.Options{Now: func() time.Time { return began.Add(time.Duration(passed.Load())) }})
			postgrestest.Exec(t, url, fmt.Sprintf(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
				'BEGIN RAISE EXCEPTION USING ERRCODE = ''%s'', MESSAGE = ''as the server says''; END'`, code))
			postgrestest.Exec(t, url, "CREATE TRIGGER refuse BEFORE INSERT ON environments FOR EACH ROW "+
				"WHEN (NEW.id = 'refused') EXECUTE FUNCTION refuse()")
			must(t, s.Ready(t.Context()))
			if err := remember(t, s, "refused"); sandbox.CodeOf(err) != sandbox.Unavailable {
				t.Errorf("the write returned %v", err)
			}
			if fault, err := s.Fault(); fault != want || err == nil {
				t.Errorf("its fault is %q, %v", fault, err)
			}
			if err := s.Ready(t.Context()); sandbox.CodeOf(err) != sandbox.Unavailable {
				t.Errorf("its readiness is %v", err)
			}
			passed.Store(int64(time.Minute))
			err := remember(t, s, "stored")
			if ready := s.Ready(t.Context()); (want == storage.FaultDamaged) != (err != nil) ||
				(want == storage.FaultDamaged) != (ready != nil) {
				t.Errorf("a minute later another write returned %v, and the readiness is %v", err, ready)
			}
		})
	}
}

// TestAFullDiskIsAFaultForAWhile: a small write that succeeds does not prove that there is space.
func TestAFullDiskIsAFaultForAWhile(t *testing.T) {
	t.Parallel()
	var passed atomic.Int64
	began := time.Now()
	s := ledgertest.Open(t, ledgertest.SQLiteURL(t),
		ledger.Options{Now: func() time.Time { return began.Add(time.Duration(passed.Load())) }})
	must(t, s.BoundPages(1))
	err := s.Write(t.Context(), func(tx *ledger.Tx) error { return changeBoth(tx, "large", 1<<20) })
	if sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Fatalf("a large write returned %v", err)
	}
	if err := s.Ready(t.Context()); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("right after, its readiness is %v", err)
	}
	passed.Store(int64(time.Minute))
	must(t, s.Ready(t.Context()))
}
