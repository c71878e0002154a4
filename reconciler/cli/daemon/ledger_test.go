package daemon_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/bucketobjects"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/location"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/sealedsecrets"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/storage"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshotstore"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/daemon"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/servetest"
)

// command runs one of the reconciler's own commands and returns its exit code and its output.
func command(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	var b bytes.Buffer
	cmd := cli.New(cli.Config{Version: "test", Local: daemon.Commands(cli.Config{Version: "test"})})
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
	from, to, file := "sqlite://"+dir+"/from/ledger.db", "sqlite://"+dir+"/to/ledger.db", dir+"/backup.tar"
	wantCommand(t, exit.Failed, "there is no ledger", "backup", "--ledger", from, file)
	wantCommand(t, exit.Done, "17, was 0", "migrate", "--ledger", from)
	wantCommand(t, exit.Done, "17, was 17", "migrate", "--ledger", from)
	sealed, err := seal.InFile(location.SecretKeyFile(from), true).Seal([]byte("secret"), "a purpose")
	if err != nil {
		t.Fatal(err)
	}
	keepSomething(t, from, sealed)

	wantCommand(t, exit.Done, "1 environment, ", "backup", "--ledger", from, file)
	wantCommand(t, exit.Failed, "is not overwritten", "backup", "--ledger", from, file)
	wantCommand(t, exit.Usage, "the file to create", "backup", "--ledger", from)
	wantCommand(t, exit.Usage, "table or json", "backup", "--ledger", from, dir+"/other", "--output", "xml")

	wantCommand(t, exit.Done, "1 snapshot, 0 outputs", "restore", "--ledger", to, "--check", file)
	if _, err := os.Stat(filepath.Join(dir, "to")); !os.IsNotExist(err) {
		t.Errorf("a check has written something: %v", err)
	}
	code, out := command(t, "restore", "--ledger", to, "--output", "json", file)
	var restored struct {
		LedgerID   string `json:"ledger_id"`
		RestoredTo string `json:"restored_to"`
		Snapshots  int    `json:"snapshots"`
		Keys       bool   `json:"keys"`
	}
	if err := json.Unmarshal([]byte(out), &restored); err != nil || code != 0 || restored.RestoredTo != to ||
		restored.Snapshots != 1 || !restored.Keys {
		t.Errorf("it ends with %d and says %s", code, out)
	}
	if x, err := storage.Examine(t.Context(), to); err != nil || x.ID != restored.LedgerID || x.ID == "" {
		t.Errorf("the restored ledger is %+v, %v, want %s", x, err, restored.LedgerID)
	}
	for _, file := range []string{"ledger.db.key", "state/1/2/3.tar.zst"} {
		if _, err := os.Stat(filepath.Join(dir, "to", file)); err != nil {
			t.Error(err)
		}
	}
	wantCommand(t, exit.Failed, "is not overwritten", "restore", "--ledger", to, file)
}

func TestMissingPartsOfABackupAreListedInShortLines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	from, to, file := "sqlite://"+dir+"/from/ledger.db", "sqlite://"+dir+"/to/ledger.db", dir+"/backup.tar"
	sealed, err := seal.InFile(location.SecretKeyFile(from), true).Seal([]byte("secret"), "a purpose")
	if err != nil {
		t.Fatal(err)
	}
	keepSomething(t, from, sealed)
	wantCommand(t, exit.Done, "left out", "backup", "--ledger", from, "--without-keys", "--without-saved-data", file)
	for _, args := range [][]string{{"--check"}, {}} {
		code, out := command(t, append([]string{"restore", "--ledger", to, file}, args...)...)
		missing := 0
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "missing ") {
				missing++
			}
			if short := strings.ReplaceAll(line, dir, "/var/lib/sandbox"); len(short) > 160 {
				t.Errorf("%d characters: %s", len(short), line)
			}
		}
		if code != exit.Failed || missing != 2 || !strings.Contains(out, "2 parts are missing") {
			t.Errorf("%v ends with %d and says\n%s", args, code, out)
		}
		if _, err := os.Stat(filepath.Join(dir, "to/ledger.db")); !os.IsNotExist(err) {
			t.Errorf("%v has made the ledger: %v", args, err)
		}
	}
	wantCommand(t, exit.Done, "missing", "restore", "--incomplete", "--ledger", to, file)

	if err := os.RemoveAll(filepath.Join(dir, "from/state")); err != nil {
		t.Fatal(err)
	}
	wantCommand(t, exit.Failed, "was written, but lacks 1 part", "backup", "--ledger", from, dir+"/lacking.tar")
}

// TestAnInterruptedBackupLeavesNothing interrupts a backup that waits for its bucket.
func TestAnInterruptedBackupLeavesNothing(t *testing.T) {
	t.Parallel()
	i := servetest.New(t)
	url := "sqlite://" + i.Dir + "/ledger.db"
	keepSomething(t, url, []byte("not sealed"))
	asked := make(chan struct{}, 1)
	bucket := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
		default: // a retry
		}
		<-r.Context().Done()
	}))
	defer bucket.Close()
	dir := t.TempDir()
	cmd := i.Command(t.Context(), "backup", "--ledger", url, "--without-keys",
		"--state-url", "s3://kept?region=auto&use_path_style=true&endpoint="+bucket.URL, dir+"/backup.tar")
	cmd.Env = append(cmd.Env, "AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=test-secret", "AWS_EC2_METADATA_DISABLED=true",
		"AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-asked
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() < 0 {
		t.Errorf("it ended with %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v\n%s", left, err, out.String())
	}
}

// keepSomething stores a secret and a snapshot in a ledger.
func keepSomething(t *testing.T, url string, sealed []byte) {
	t.Helper()
	bucket, err := snapshotstore.Open(t.Context(), location.SnapshotURL(url))
	if err != nil {
		t.Fatal(err)
	}
	var data bytes.Buffer
	if err := tar.NewWriter(&data).Close(); err != nil {
		t.Fatal(err)
	}
	saved, err := bucket.Save(t.Context(), "1/2/3.tar.zst", &data, 1<<20)
	if err := errors.Join(err, bucket.Close()); err != nil {
		t.Fatal(err)
	}
	store, err := ledger.Open(t.Context(), url, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = store.Write(t.Context(), func(tx *ledger.Tx) error {
		if err := ledgertest.Environment(tx, "e"); err != nil {
			return err
		}
		if err := sealedsecrets.In(tx).Save(&sealedsecrets.Secret{
			EnvironmentID: "e",
			Name:          "s",
			Sealed:        sealed,
			UpdatedAt:     tx.Now,
		}); err != nil {
			return err
		}
		if err := bucketobjects.In(tx).MarkForDeletion(saved.Object, micro.Never); err != nil {
			return err
		}
		return bucketobjects.In(tx).Publish(&bucketobjects.Snapshot{Key: "k", Object: saved.Object, SHA256: saved.SHA256,
			Bytes: saved.Bytes, UnpackedBytes: saved.Size}, tx.Now)
	})
	if err := errors.Join(err, store.Close()); err != nil {
		t.Fatal(err)
	}
}
