package reconciler_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// conditions sends conditions to a reconciler without an engine.
type conditions struct {
	*served
	secret string
	sent   int
}

func (i *install) serveConditions(change func(*reconciler.Config)) *conditions {
	i.Helper()
	secret := webhook.NewSecret()
	i.Write("secrets", secret+"\n")
	return &conditions{served: i.serve(func(c *reconciler.Config) {
		c.Docker.Host = "tcp://127.0.0.1:1"
		change(c)
	}), secret: secret}
}

// send sends a new condition.
func (c *conditions) send() error {
	c.Helper()
	c.sent++
	return c.Deliver(c.secret, fmt.Sprintf("m-%d", c.sent))
}

// wantRefusing checks that no condition is acknowledged, and that probes and metrics show the reason.
func (c *conditions) wantRefusing(fault string) {
	c.Helper()
	if err := c.send(); sandbox.CodeOf(err) != sandbox.Unavailable {
		c.Errorf("a condition was answered %v", err)
	}
	if code := c.probe("/readyz"); code != http.StatusServiceUnavailable {
		c.Errorf("/readyz is answered with %d", code)
	}
	if code := c.probe("/livez"); code != http.StatusOK {
		c.Errorf("/livez is answered with %d", code)
	}
	c.wantFault(fault)
}

// wantFault checks that the metrics show one fault, or none for "".
func (c *conditions) wantFault(fault string) {
	c.Helper()
	r, err := http.NewRequestWithContext(c.Context(), http.MethodGet, "http://"+c.Address+"/metrics", nil)
	if err != nil {
		c.Fatal(err)
	}
	tokens, err := os.ReadFile(c.Config.TokenFile)
	if err != nil {
		c.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+strings.Fields(string(tokens))[1])
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		c.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }() // only read
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		c.Fatal(err)
	}
	for _, f := range []string{"lost", "damaged", "full", "read_only"} {
		want := fmt.Sprintf("sandbox_ledger_fault{fault=%q} 0\n", f)
		if f == fault {
			want = fmt.Sprintf("sandbox_ledger_fault{fault=%q} 1\n", f)
		}
		if !strings.Contains(string(text), want) {
			c.Errorf("the metrics do not hold %s", want)
		}
	}
}

func (c *conditions) wantServing() {
	c.Helper()
	w := &world{T: c.T}
	w.eventually("it is ready", func() bool { return c.probe("/readyz") == http.StatusOK })
	if err := c.send(); err != nil {
		c.Error(err)
	}
	c.wantFault("")
}

// TestALedgerDeletedBeneathServeAcknowledgesNothing: writes of SQLite to a deleted file are lost at the next start.
func TestALedgerDeletedBeneathServeAcknowledgesNothing(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	c := i.serveConditions(func(*reconciler.Config) {})
	c.wantServing()
	if err := os.Remove(i.Dir + "/ledger.db"); err != nil {
		t.Fatal(err)
	}
	if err := c.send(); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("a condition was answered %v", err)
	}
	w := &world{T: t}
	w.eventually("it is not ready", func() bool { return c.probe("/readyz") == http.StatusServiceUnavailable })
	c.wantRefusing("lost")
}

// TestServeStartsOnAFullDiskAndSaysSo also frees disk space again, and fills the disk while serve runs.
func TestServeStartsOnAFullDiskAndSaysSo(t *testing.T) {
	t.Parallel()
	disk := ledgertest.MountDisk(t, "48m", unix.MNT_DETACH)
	filler := filepath.Join(disk, "filler")
	onDisk := func(c *reconciler.Config) {
		c.LedgerURL, c.SnapshotURL = "sqlite://"+disk+"/ledger.db", "file://"+t.TempDir()
	}
	t.Run("made", func(t *testing.T) {
		i := newInstall(t)
		i.serveConditions(onDisk).wantServing()
	})
	ledgertest.FillDisk(t, filler)
	i := newInstall(t)
	c := i.serveConditions(onDisk)
	c.wantRefusing("full")
	for range 40 {
		if err := c.send(); sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Errorf("a condition was answered %v", err)
		}
	}
	c.wantRefusing("full")
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	c.wantServing()
}

// TestServeRefusesALedgerThatOthersCanReadOrThatIsEmpty, and the error says how to repair it.
func TestServeRefusesALedgerThatOthersCanReadOrThatIsEmpty(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"empty": "an empty file", "readable": "run `chmod 600 "} {
		i := newInstall(t)
		file := i.Write("ledger.db", map[string]string{"empty": "", "readable": "SQLite format 3"}[name])
		if name == "readable" {
			if err := os.Chmod(file, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		err := reconciler.Serve(ctx, reconciler.Config{
			Listen:     "127.0.0.1:0",
			LedgerURL:  "sqlite://" + file,
			TokenFile:  i.Dir + "/tokens",
			SecretFile: i.Dir + "/secrets",
			Logger:     slog.New(slog.DiscardHandler),
		}, func(reconciler.Started) { stop() })
		if sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: it ended with %v", name, err)
		}
	}
}
