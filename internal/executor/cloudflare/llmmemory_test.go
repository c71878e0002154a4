package cloudflare_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// paddedCall returns a shell command that calls a model with a body of a size. The body arrives some seconds after the
// header.
func paddedCall(size int, x wish) string {
	const content = `"content":"`
	whole := body(false, x)
	at := strings.Index(whole, content) + len(content)
	return fmt.Sprintf(`{
		printf 'POST /llm/main/v1/chat/completions HTTP/1.1\r\nHost: llm.sandbox.internal\r\nConnection: close\r\n'
		printf 'Content-Length: %d\r\n\r\n'
		sleep 5
		printf '%%s' '%s'; head -c %d /dev/zero | tr '\0' a; printf '%%s' '%s'
	} | nc -w 100 llm.sandbox.internal 80; true`, size, whole[:at], size-len(whole), whole[at:])
}

// TestCallsOnCloudflareHoldBoundedMemory: the memory of all calls of a sandbox is that of its Durable Object, 128 MB.
func TestCallsOnCloudflareHoldBoundedMemory(t *testing.T) {
	t.Parallel()
	k := newTalk(t, sandbox.NetworkNone)
	const busy = "X-Sandbox-Gateway: busy"
	waits := plainly()
	waits.Stall = 0 // the upstream does not even answer with a header
	large := paddedCall(7<<20, waits)
	k.sh(k.h, fmt.Sprintf(`for i in 1 2; do (%s) >/workspace/large-$i 2>&1 </dev/null & done`, large))
	testwait.Until(t, patience, "the upstream has two large bodies", func() bool { return len(k.upstream.got()) == 2 })
	if said := k.sh(k.h, large); !strings.Contains(said, busy) {
		t.Errorf("while two large bodies wait for the upstream, a third gets %.300s", said)
	}
	close(k.upstream.release)
	testwait.Until(t, patience, "both get their answers", func() bool {
		return k.count("grep -l '200 OK' /workspace/large-*") == 2
	})
	if said := k.sh(k.h, large); !strings.Contains(said, "200 OK") {
		t.Errorf("later, a large body gets %.300s", said)
	}

	const calls, most = 160, 128
	before := len(k.upstream.got())
	waits.Hang = true
	k.sh(k.h, fmt.Sprintf(`for i in $(seq %d); do (%s) >/workspace/small-$i 2>&1 </dev/null & done`, calls,
		paddedCall(1000, waits)))
	testwait.NoError(t, patience, "each call is refused or reaches the upstream", func() error {
		sent, refused := len(k.upstream.got())-before, k.count(fmt.Sprintf("grep -l '%s' /workspace/small-*", busy))
		if sent > most {
			t.Fatalf("of %d calls that arrive together %d reach the upstream, want at most %d", calls, sent, most)
		}
		if sent+refused < calls {
			return fmt.Errorf("%d were sent, %d refused", sent, refused)
		}
		return nil
	})
	k.must(k.worker.Kill(t.Context(), k.h)) // it ends the calls that hang
}

// count returns how many lines a command prints.
func (k *talk) count(command string) int {
	k.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(k.sh(k.h, command+" | wc -l")))
	k.must(err)
	return n
}
