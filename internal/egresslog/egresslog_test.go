package egresslog_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/egresslog"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// halfListed is a source in which one environment does not answer.
type halfListed struct {
	silent error
	read   []string
}

func (h *halfListed) EgressLogs(_ context.Context, ledgerID string) ([]driver.EnvironmentRef, error) {
	return []driver.EnvironmentRef{{LedgerID: ledgerID, EnvironmentID: "catan-7", Instance: "account-1"}}, h.silent
}

func (h *halfListed) EgressLog(_ context.Context, ref driver.EnvironmentRef,
	_ sandbox.GatewayPosition) ([]sandbox.EgressRecord, error) {
	h.read = append(h.read, ref.EnvironmentID)
	return nil, nil
}

func TestAnEnvironmentThatDoesNotAnswerHidesNoOthersLog(t *testing.T) {
	t.Parallel()
	store, err := ledger.Open(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "ledger.db"), ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	from := &halfListed{silent: errors.New("its Worker does not answer")}
	if err := egresslog.New(store).Collect(t.Context(), from, "account-1"); !errors.Is(err, from.silent) {
		t.Errorf("collect: %v", err)
	}
	if len(from.read) != 1 || from.read[0] != "catan-7" {
		t.Errorf("it read the logs of %v", from.read)
	}
}
