package executortest

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
)

// tracer tries to open the memory of each command's helper, and to trace it.
//
//go:embed testdata/tracer.go
var tracer string

// tracedCommands: code in the sandbox that reached a helper's memory could forge the result of a command.
func tracedCommands(t *testing.T, w *world) {
	const commands = 30
	h := w.spawn(t)
	must(t, w.x.CopyTo(t.Context(), h, "/workspace", pack(t, executable("tracer", Compile(t, tracer)))))
	w.sh(t, h, "/workspace/tracer /workspace/enough > /workspace/report 2>&1 &")
	eventually(t, "the tracer has begun", func() bool { return w.sh(t, h, "cat /workspace/report").stdout() == "ready\n" })
	for range commands {
		if res := w.exec(t, h, sandbox.ExecRequest{Command: []string{"/bin/false"}}); res.ExitCode != 1 {
			t.Errorf("/bin/false ended with exit code %d", res.ExitCode)
		}
	}
	w.sh(t, h, "touch /workspace/enough")
	var said string
	eventually(t, "the tracer has ended", func() bool {
		said = w.sh(t, h, "cat /workspace/report").stdout()
		return strings.Count(said, "\n") > 1
	})
	var tried, opened, seized int
	if _, err := fmt.Sscanf(said, "ready\ntried %d opened %d seized %d\n", &tried, &opened, &seized); err != nil {
		t.Fatalf("the tracer says %q: %v", said, err)
	}
	t.Logf("the tracer met %d threads of %d helpers", tried, commands)
	if tried < commands {
		t.Errorf("the tracer met %d threads of %d helpers: it was too slow to prove anything", tried, commands)
	}
	if opened != 0 || seized != 0 {
		t.Errorf("of %d threads of helpers, it opened the memory of %d and traced %d", tried, opened, seized)
	}
}
