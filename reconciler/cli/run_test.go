package cli_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
)

func TestRunIsTheCommandInASandboxOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game(time.Second)
	runs := w.Running()
	once := func(stdin string, args ...string) result {
		return run(t.Context(), stdin,
			append([]string{"run", "--url", w.url, "--token-file", w.tokenFile, "catan-7"}, args...)...)
	}
	if r := once("from stdin", "-i", "--", "cat"); r != (result{0, "from stdin", ""}) {
		t.Errorf("cat gave %+v", r)
	}
	if r := once("from stdin", "--", "cat"); r != (result{0, "", ""}) {
		t.Errorf("cat without input gave %+v", r)
	}
	if r := once("", "--", "exit", "42"); r != (result{42, "", ""}) {
		t.Errorf("exit 42 gave %+v", r)
	}
	w.want(once("", "--report", "--", "echo"), exit.Done, "did:run:", "exit code 0", "$0", "destroyed")
	to := filepath.Join(t.TempDir(), "out.tar")
	w.want(once("", "--collect", "config.json", "--collect", "none", "--to", to, "--report", "--", "echo"), exit.Done,
		"missing: /workspace/none")
	if b, err := os.ReadFile(to); err != nil || !bytes.Contains(b, []byte("workspace/config.json")) {
		t.Errorf("it collected %d bytes: %v", len(b), err)
	}
	w.want(once("", "--collect", "x", "--", "echo"), exit.Usage, "--to")
	w.want(once("", "--agent", "did:plc:ann", "--", "echo"), exit.NotRun, "did:plc:ann")
	w.want(once("", "--margin", "1s", "--", "echo"), exit.NotRun, "margin")
	w.want(once("", "--files", "/no/such/file", "--", "echo"), exit.Usage, "--files")
	w.want(once("", "-o", "json", "--", "echo"), exit.Usage, "prints the command's own output")
	w.want(once(""), exit.Usage, "a command")
	if w.Running() != runs {
		t.Errorf("there are %d sandboxes, and there were %d", w.Running(), runs)
	}
}
