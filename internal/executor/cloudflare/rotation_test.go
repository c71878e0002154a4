package cloudflare_test

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/location"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestAWorkerAcceptsTwoKeys(t *testing.T) {
	t.Parallel()
	server := cloudflaretest.Start(t, cloudflaretest.Config{Key: "the new key", OlderKey: "the old key"})
	w := &world{t, server, server.Worker()}
	h := w.spawn(cloudflare.Limits{})
	for key, accepted := range map[sandbox.Secret]bool{
		"the new key":             true,
		"the old key":             true,
		"the new key the old key": false,
		"undefined":               false,
	} {
		x, err := cloudflare.NewWorker(cloudflare.WorkerConfig{URL: server.URL, Key: key})
		w.must(err)
		_, inspected := x.Inspect(t.Context(), h)
		r, err := sandbox.ExecRequest{Command: []string{"cat"}, Stdin: strings.NewReader("in chunks")}.Normalize()
		w.must(err)
		res, ran := x.Exec(t.Context(), h, r)
		if accepted && (inspected != nil || ran != nil || string(res.Stdout) != "in chunks") {
			t.Errorf("key %q: %v; %q, %v", key, inspected, res.Stdout, ran)
		}
		if !accepted && (sandbox.CodeOf(inspected) != sandbox.Unavailable || ran == nil) {
			t.Errorf("key %q is accepted: %v, %v", key, inspected, ran)
		}
		w.must(x.Close())
	}
}

// keyFile is the ledger's key file.
type keyFile string

func (f keyFile) lines(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(string(f))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// write replaces the file atomically, as an operator should.
func (f keyFile) write(t *testing.T, lines ...string) {
	t.Helper()
	next := string(f) + ".next"
	if err := os.WriteFile(next, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, string(f)); err != nil {
		t.Fatal(err)
	}
}

// TestKeysAreRotatedUnderLoad puts a new key into the key file, applies, and removes the old key, while a lease is in
// use. A deployment resets Durable Objects, which may cut off a command; no signature may be refused.
func TestKeysAreRotatedUnderLoad(t *testing.T) {
	t.Parallel()
	u := newUpstream(t)
	h := newHouseWith(t, u.host(t))
	h.environment("rpg-5", withModels)
	ref := h.acquire("rpg-5")
	before := h.lease(ref, func(l sandbox.Lease) bool { return l.Phase == sandbox.PhaseAwake })
	h.sh(ref, "echo kept > /workspace/note")

	stop, ran := make(chan struct{}), 0
	var load sync.WaitGroup
	load.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			_, err := h.service.Exec(t.Context(), ref, sandbox.ExecRequest{Command: []string{"true"}})
			if err == nil {
				ran++
			} else if strings.Contains(err.Error(), "signature") || strings.Contains(err.Error(), "out of reach") {
				t.Errorf("under rotation: %v", err)
			}
		}
	})
	look := func() { // longer than the interval of the reconciler's watch
		t.Helper()
		time.Sleep(cloudflare.DefaultPoll + time.Second) //nolint:forbidigo // the watch polls meanwhile
		if got := h.sh(ref, "cat /workspace/note"); got != "kept\n" {
			t.Errorf("the sandbox has %q", got)
		}
		// The keys of models are encrypted with the Worker's own key.
		if said := h.sh(ref, callCommand("openai", body(false, plainly()))); !strings.Contains(said, "200 OK") {
			t.Errorf("a model call gets %s", said)
		}
	}
	file := keyFile(location.SecretKeyFile(h.config.LedgerURL))
	old := file.lines(t)[0]
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // never fails
	fresh := fmt.Sprintf("sandbox-key-1 %s", base64.StdEncoding.EncodeToString(raw))
	file.write(t, fresh, old)
	look()
	h.environment("rpg-5", withModels) // the Worker gets both
	look()
	file.write(t, fresh)
	look()
	h.environment("rpg-5", withModels) // the Worker loses the old one
	look()
	close(stop)
	load.Wait()
	if ran < 20 {
		t.Errorf("only %d commands ran", ran)
	}
	after := h.lease(ref, func(l sandbox.Lease) bool { return l.Phase == sandbox.PhaseAwake })
	if after.SandboxID != before.SandboxID || after.Generation != before.Generation {
		t.Errorf("the lease was %+v and is %+v", before, after)
	}
	if _, err := h.service.Release(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	h.lease(ref, destroyed)
}
