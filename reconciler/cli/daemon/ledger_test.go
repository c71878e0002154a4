package daemon_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/daemon"
)

// command runs one of the reconciler's own commands and returns its exit code and its output.
func command(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	var b bytes.Buffer
	cmd := cli.New(cli.Config{Version: "test", Local: daemon.Commands("test")})
	cmd.SetOut(&b)
	cmd.SetErr(&b)
	code = cli.Run(t.Context(), cmd, args)
	return code, b.String()
}

func wantCommand(t *testing.T, code int, texts string, args ...string) {
	t.Helper()
	got, out := command(t, args...)
	if got != code || !strings.Contains(out, texts) {
		t.Errorf("%v ends with %d and says\n%swant %d and %q", args, got, out, code, texts)
	}
}

func TestALedgerIsBackedUpAndRestored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from, to, file := "sqlite://"+dir+"/from/ledger.db", "sqlite://"+dir+"/to/ledger.db", dir+"/backup"
	wantCommand(t, cli.ExitFailed, "there is no ledger", "backup", "--ledger", from, file)
	wantCommand(t, cli.ExitDone, "11, was 0", "migrate", "--ledger", from)
	wantCommand(t, cli.ExitDone, "11, was 11", "migrate", "--ledger", from)
	sealed, err := seal.InFile(ledger.SecretKeyFile(from), true).Seal([]byte("secret"), "a purpose")
	if err != nil {
		t.Fatal(err)
	}
	keepSomething(t, from, sealed)

	wantCommand(t, cli.ExitDone, "1 environment, ", "backup", "--ledger", from, file)
	wantCommand(t, cli.ExitFailed, "is not overwritten", "backup", "--ledger", from, file)
	wantCommand(t, cli.ExitUsage, "the file to create", "backup", "--ledger", from)
	wantCommand(t, cli.ExitUsage, "table or json", "backup", "--ledger", from, dir+"/other", "--output", "xml")

	wantCommand(t, cli.ExitFailed, "a key: reading the key", "restore", "--ledger", to, file)
	key := []string{"restore", "--ledger", to, "--secret-key-file", ledger.SecretKeyFile(from), file}
	wantCommand(t, cli.ExitFailed, "snapshot 1/2/3.tar.zst", key...)
	if err := os.MkdirAll(filepath.Join(dir, "to/state/1/2"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "to/state/1/2/3.tar.zst"), []byte("state"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantCommand(t, cli.ExitDone, "all pages and references are valid", append(key, "--check")...)
	if _, err := os.Stat(filepath.Join(dir, "to/ledger.db")); !os.IsNotExist(err) {
		t.Errorf("a check has made the ledger: %v", err)
	}
	code, out := command(t, append(key, "--output", "json")...)
	var restored struct {
		LedgerID   string `json:"ledger_id"`
		RestoredTo string `json:"restored_to"`
		States     int    `json:"states"`
	}
	if err := json.Unmarshal([]byte(out), &restored); err != nil || code != 0 || restored.RestoredTo != to ||
		restored.States != 1 {
		t.Errorf("it ends with %d and says %s", code, out)
	}
	if x, err := ledger.Examine(t.Context(), to); err != nil || x.ID != restored.LedgerID || x.ID == "" {
		t.Errorf("the restored ledger is %+v, %v, want %s", x, err, restored.LedgerID)
	}
	wantCommand(t, cli.ExitFailed, "is not overwritten", key...)
	wantCommand(t, cli.ExitDone, "missing", "restore", "--incomplete",
		"--ledger", "sqlite://"+dir+"/third/ledger.db", file)
}

// keepSomething puts a secret and a saved state on a ledger.
func keepSomething(t *testing.T, url string, sealed []byte) {
	t.Helper()
	store, err := ledger.Open(t.Context(), url, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = store.Write(t.Context(), func(tx *ledger.Tx) error {
		if err := ledgertest.Environment(tx, "e"); err != nil {
			return err
		}
		if err := tx.SaveSecret(&ledger.EnvironmentSecret{
			EnvironmentID: "e",
			Name:          "s",
			Sealed:        sealed,
			UpdatedAt:     tx.Now,
		}); err != nil {
			return err
		}
		if err := tx.Snapshots().MarkForDeletion("1/2/3.tar.zst", ledger.Never); err != nil {
			return err
		}
		return tx.Snapshots().Publish(&ledger.SavedSnapshot{Key: "k", Object: "1/2/3.tar.zst"}, tx.Now)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}
