package daemon_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/servetest"
)

// openTerminal returns the two ends of a pseudo-terminal.
func openTerminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ours.Close() }) // the test may have closed it
	if err := unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = theirs.Close() })
	return ours, theirs
}

// TestServeIntroducesItself reads what serve prints on a terminal and what it logs.
func TestServeIntroducesItself(t *testing.T) {
	t.Parallel()
	i := servetest.New(t)
	token, err := access.ReadToken(i.Dir + "/tokens")
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := openTerminal(t)
	cmd := i.Command(t.Context(), "serve", "--listen", "127.0.0.1:0", "--log-format", "json",
		"--ledger", "sqlite://"+i.Dir+"/ledger.db")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = theirs, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	var printed []string
	for lines := bufio.NewScanner(ours); lines.Scan(); {
		printed = append(printed, strings.TrimSpace(lines.Text()))
		if strings.HasPrefix(printed[len(printed)-1], "Try ") {
			break
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}

	var logged map[string]string
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, `"reconciler: serving"`) {
			if err := json.Unmarshal([]byte(line), &logged); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, port, _ := strings.Cut(logged["address"], ":")
	api := "http://127.0.0.1:" + port
	want := map[string]string{
		"API":       api,
		"Dashboard": api + "/ui/",
		"Token":     i.Dir + "/tokens",
		"Webhook":   api + "/v1/conditions, secrets in " + i.Dir + "/secrets",
		"Ledger":    logged["ledger_id"] + ", sqlite://" + i.Dir + "/ledger.db",
		"Engine":    logged["engine"],
		"Try":       "sandbox lease list --url " + api + " --token-file " + i.Dir + "/tokens",
	}
	if len(printed) != 8 || printed[0] != "Sandbox reconciler test is ready." || len(logged["ledger_id"]) < 8 ||
		!strings.HasPrefix(logged["engine"], "docker ") {
		t.Errorf("%d lines are printed:\n%s\nand logged is %v", len(printed), strings.Join(printed, "\n"), logged)
	}
	for _, line := range printed[1:] {
		name, says, _ := strings.Cut(line, " ")
		if strings.TrimSpace(says) != want[name] {
			t.Errorf("%s is %q, want %q", name, says, want[name])
		}
	}
	for attribute, name := range map[string]string{
		"api": "API", "dashboard": "Dashboard", "token_file": "Token", "try": "Try", "webhook_secret_file": "",
	} {
		if says := logged[attribute]; says == "" || name != "" && says != want[name] {
			t.Errorf("the log says %s=%q, want %q", attribute, says, want[name])
		}
	}
	if all := strings.Join(printed, "\n") + log.String(); strings.Contains(all, token) || strings.Contains(all, "whsec_") {
		t.Errorf("a credential is shown:\n%s", all)
	}

	// The guide shows the same lines.
	guide, err := os.ReadFile("../../../templates/guides/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(guide), "```text\nSandbox reconciler 0.1.0 is ready.\n")
	shown, _, _ = strings.Cut(shown, "```")
	if words := firstWords(strings.Split(strings.TrimSpace(shown), "\n")); !slices.Equal(words, firstWords(printed[1:])) {
		t.Errorf("the guide shows the lines %v, and %v are printed", words, firstWords(printed[1:]))
	}

	// The first command works as printed.
	s := i.Serve(func(*reconciler.Config) {})
	_, args, _ := strings.Cut(strings.ReplaceAll(want["Try"], api, "http://"+s.Address), " ")
	wantCommand(t, 0, "", strings.Split(args, " ")...)
}

func firstWords(lines []string) (words []string) {
	for _, line := range lines {
		words = append(words, strings.Fields(line)[0])
	}
	return words
}
