package cloudflare_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
)

// TestCodeOfTheSandboxDoesNotGetInByThePort makes programs inside look for the key, connect with invalid ones, and
// occupy the port while its owner works.
func TestCodeOfTheSandboxDoesNotGetInByThePort(t *testing.T) {
	server := cloudflaretest.Start(t, cloudflaretest.Config{})
	w := &world{t, server, server.Worker()}
	h := w.spawn(cloudflare.Limits{})
	look := fmt.Sprintf("env | grep -c %s; cat /proc/[0-9]*/environ 2>/dev/null | grep -c %s; "+
		"cat /proc/1/environ 2>&1 | tail -1", guest.PortKey, guest.PortKey)
	if got := w.sh(h, look); !strings.HasPrefix(got, "0\n0\n") || !strings.Contains(got, "Permission denied") {
		t.Errorf("code of the sandbox can find the key: %q", got)
	}
	const attempts = 200
	knock := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do
		{ printf 'SBXPORT\n\001'; head -c 32 /dev/urandom; printf 'SBXCHAN\n'; } | nc -w 1 127.0.0.1 %d | wc -c; i=$((i+1)); done | sort | uniq -c`, attempts, guest.Port)
	if got := strings.Fields(w.sh(h, knock)); len(got) != 2 || got[0] != fmt.Sprint(attempts) || got[1] != "0" {
		t.Errorf("the port answers without the key: %q", got)
	}
	w.sh(h, fmt.Sprintf(`i=0; while [ $i -lt %d ]; do (sleep 30 | nc 127.0.0.1 %d) >/dev/null 2>&1 & i=$((i+1)); done`,
		attempts, guest.Port))
	w.must(w.worker.Close())
	w.worker = server.Worker()
	if got := w.sh(h, "echo here"); got != "here\n" {
		t.Errorf("with its port occupied it says %q", got)
	}
}

// TestAnOperationIsAskedForAgainUntilItIsAnswered: a guest closes connections of a flood, and slow ones of a busy
// machine, before it has read their requests. A start does not fail because nothing answers one connection.
func TestAnOperationIsAskedForAgainUntilItIsAnswered(t *testing.T) {
	cloudflaretest.Need(t)
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "node", "testdata/dialagain.mjs", buildModule(t, "port"),
		buildModule(t, "container")).Output()
	if err != nil {
		t.Fatalf("run the operations: %v", err)
	}
	type end struct {
		End              string
		Connections, IDs int
	}
	var got map[string]end
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("it says %s: %v", out, err)
	}
	const silent = "operation save: the guest closed the connection without a result"
	const notReady = "start its container: its guest is not ready after 60 s: "
	for name, want := range map[string]end{
		"twice":             {"same", 3, 1},
		"always":            {silent, 3, 1},
		"in the middle":     {"operation save: the guest closed the connection in the middle of its answer", 1, 1},
		"with input":        {"same", 2, 1},
		"without its input": {"it is missing", 1, 1},
		"cancelled":         {silent, 1, 1},
		"the last one":      {silent, 1, 1},

		"of a container that has ended": {silent, 1, 1},
		"not accepted":                  {"its guest did not accept a connection within 10 s", 1, 0},

		"start with one not accepted": {End: "started"},
		"start with one not answered": {End: "started"},
		"start with none accepted":    {End: notReady + "its guest did not accept a connection within 10 s"},
		"start with none answered":    {End: notReady + "operation usage: the guest did not answer within 10 s"},
		"start that ends":             {End: "start its container: it ended with exit code 0"},
	} {
		if got[name] != want {
			t.Errorf("%s: %+v, want %+v", name, got[name], want)
		}
	}
}
