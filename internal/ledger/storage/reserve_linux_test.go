package storage_test

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// smallDisk mounts a disk and returns its directory, and a function that fills it completely.
func smallDisk(t *testing.T, size string) (dir string, fill func() (empty func())) {
	t.Helper()
	dir = ledgertest.MountDisk(t, size, 0)
	return dir, func() func() {
		t.Helper()
		file := filepath.Join(dir, "filler")
		ledgertest.FillDisk(t, file)
		return func() { must(t, os.Remove(file)) }
	}
}

// TestALedgerIsOpenedOnAFullDisk: essential work uses the reserve and all other work is refused. Everything continues
// once there is space.
func TestALedgerIsOpenedOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir, fill := smallDisk(t, "16m")
	path := filepath.Join(dir, "ledger.db")
	options := ledger.Options{Reserve: 2 << 20, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	s := ledgertest.Open(t, "sqlite://"+path, options)
	must(t, remember(t, s, "before"), s.Ready(t.Context()), s.Close())
	if info, err := os.Stat(path + ".reserve"); err != nil || info.Size() != 2<<20 || info.Mode() != fs.FileMode(0o600) {
		t.Errorf("the reserve is %v, %v", info, err)
	}
	empty := fill()
	s = ledgertest.Open(t, "sqlite://"+path, options)
	if fault, err := s.Fault(); fault != storage.FaultFull || sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("its fault is %q, %v", fault, err)
	}
	if err := s.Ready(t.Context()); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("its readiness is %v", err)
	}
	if err := remember(t, s, "refused"); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("a write returned %v", err)
	}
	must(t, s.Write(storage.Essential(context.Background()),
		func(tx *ledger.Tx) error { return ledgertest.Environment(tx, "essential") }))
	empty()
	must(t, remember(t, s, "after"), s.Ready(t.Context()), s.Close())
	if info, err := os.Stat(path + ".reserve"); err != nil || info.Size() != 2<<20 {
		t.Errorf("with space again, the reserve is %v, %v", info, err)
	}
	wantRemembered(t, path, 3)
}

// TestAnOpenLedgerUsesItsReserveWhenTheDiskGetsFull: after the first refused write, only essential writes are
// acknowledged.
func TestAnOpenLedgerUsesItsReserveWhenTheDiskGetsFull(t *testing.T) {
	t.Parallel()
	dir, fill := smallDisk(t, "16m")
	s := ledgertest.Open(t, "sqlite://"+filepath.Join(dir, "ledger.db"), ledger.Options{Reserve: 2 << 20})
	empty := fill()
	err := s.Write(t.Context(), func(tx *ledger.Tx) error { return changeBoth(tx, "large", 4<<20) })
	if sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Fatalf("a large write returned %v", err)
	}
	if err := remember(t, s, "small"); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("a small write returned %v", err)
	}
	must(t,
		s.Write(storage.Essential(t.Context()), func(tx *ledger.Tx) error { return ledgertest.Environment(tx, "essential") }))
	empty()
	must(t, s.Ready(t.Context()), remember(t, s, "small"))
}
