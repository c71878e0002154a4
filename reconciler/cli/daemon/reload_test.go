package daemon_test

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/servetest"
)

// TestSIGHUPReloadsSettings runs the command as an operator does.
func TestSIGHUPReloadsSettings(t *testing.T) {
	t.Parallel()
	i := servetest.New(t)
	settings := i.Write("settings.yaml", "cleanup-ttl: 2h\n")
	cmd := i.Command(t.Context(), "serve", "--config", settings, "--listen", "127.0.0.1:0", "--log-format", "json",
		"--ledger", "sqlite://"+i.Dir+"/ledger.db")
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	}()
	lines := bufio.NewScanner(out)
	until := func(msg string) (line map[string]any) {
		t.Helper()
		for lines.Scan() {
			line = nil
			if err := json.Unmarshal(lines.Bytes(), &line); err == nil && line["msg"] == msg {
				return line
			}
			t.Log(lines.Text())
		}
		t.Fatalf("it ended without logging %q", msg)
		return nil
	}
	until("reconciler: serving")
	i.Write("settings.yaml", "cleanup-ttl: 3h\nlog-level: warn\n")
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if line := until("reconciler: a changed setting needs a restart"); line["setting"] != "cleanup-ttl" ||
		line["now"] != "2h0m0s" || line["then"] != "3h0m0s" {
		t.Errorf("%v", line)
	}
	i.Write("settings.yaml", "cleanup: 3h\n")
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	// At level warn, the reload of the files leaves no log line.
	for lines.Scan() {
		if strings.Contains(lines.Text(), `"level":"INFO"`) {
			t.Errorf("at level warn it logs %s", lines.Text())
		}
		if strings.Contains(lines.Text(), "the old settings stay in force") {
			break
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, out); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM it ends with %v", err)
	}
}
