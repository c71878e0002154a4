package leasing_test

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const secretValue = "hunter2-that-no-file-may-hold"

func withSecret(p *sandbox.PutEnvironment) {
	p.SecretValues = map[string]sandbox.Secret{"token": secretValue}
}

func (w *world) wantSecret(sandboxID string, want sandbox.Secret) {
	w.Helper()
	if got := w.backend.Secrets(sandboxID)["token"]; got != want {
		w.Errorf("the sandbox has the secret %q, want %q", string(got), string(want))
	}
}

// wantNotInLedger searches the files of the ledger, including WAL and key, for a secret.
func (w *world) wantNotInLedger(secret string) {
	w.Helper()
	files, err := filepath.Glob(w.path + "*")
	if err != nil || len(files) < 2 {
		w.Fatalf("the ledger's files are %v: %v", files, err)
	}
	for _, f := range files {
		content, err := os.ReadFile(f)
		if err != nil {
			w.Fatal(err)
		}
		if bytes.Contains(content, []byte(secret)) {
			w.Errorf("%s holds the secret", f)
		}
	}
}

func TestTheLedgerHoldsNoSecretInClear(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(withSecret)
		l := w.acquire(ann)
		w.exec(l.ID, "echo")
		w.wantNotInLedger(secretValue)
	})
}

// TestASandboxIsNotUsedBeforeItHasItsSecrets: a process that dies between the wake and the transfer of secrets leaves a
// sandbox that is awake without them.
func TestASandboxIsNotUsedBeforeItHasItsSecrets(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(withSecret, func(p *sandbox.PutEnvironment) { p.SleepMode = sandbox.SleepStop })
		l := w.acquire(ann)
		if _, err := w.engine.Sleep(w.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
			w.Fatal(err)
		}
		h := driver.Handle{LedgerID: w.store.ID(), EnvironmentID: game, SandboxID: l.SandboxID, Instance: "engine-1"}
		if _, err := w.backend.Wake(w.Context(), h); err != nil { // like the process that died
			w.Fatal(err)
		}
		if err := w.engine.Look(w.Context(), l.SandboxID); err != nil {
			w.Fatal(err)
		}
		if got := w.lease(l.ID); got.Phase != sandbox.PhaseAwake {
			w.Fatalf("the sandbox is %s", got.Phase)
		}
		w.wantSecret(l.SandboxID, "")
		w.exec(l.ID, "echo")
		w.wantSecret(l.SandboxID, secretValue)
	})
}

func TestSecretsThatCannotBePutNowArePutLater(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(withSecret)
		l := w.acquire(ann)
		w.startLoop()
		w.backend.Fail(fake.OpPutSecrets, sandbox.Errorf(sandbox.Unavailable, "the engine is away"))
		w.environment(func(p *sandbox.PutEnvironment) { p.SecretValues = map[string]sandbox.Secret{"token": "new"} })
		later(5 * time.Second)
		w.wantSecret(l.SandboxID, secretValue)
		if got := w.lease(l.ID); got.Attempts == 0 || got.Status != sandbox.LeaseActive {
			w.Errorf("after %d attempts the lease is %s", got.Attempts, got.Status)
		}
		w.backend.Fail(fake.OpPutSecrets, nil)
		later(time.Minute)
		w.wantSecret(l.SandboxID, "new")
	})
}

// TestSecretsThatChangeWhileTheyArePutArePutAgain: the last put wins, whatever was under way.
func TestSecretsThatChangeWhileTheyArePutArePutAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(withSecret)
		changed := false
		w.backend.Fault(fake.OpPutSecrets, func(context.Context) error {
			if !changed {
				changed = true
				w.environment(func(p *sandbox.PutEnvironment) { p.SecretValues = map[string]sandbox.Secret{"token": "new"} })
			}
			return nil
		})
		l := w.acquire(ann)
		w.wantSecret(l.SandboxID, secretValue)
		w.exec(l.ID, "echo")
		w.wantSecret(l.SandboxID, "new")
	})
}

func TestANewKeySealsSecretsAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(withSecret)
		if n, err := w.engine.ResealSecrets(w.Context()); n != 0 || err != nil {
			w.Fatalf("%d were sealed anew: %v", n, err)
		}
		file, next := w.path+".key", w.path+".next"
		if err := seal.Generate(next); err != nil {
			w.Fatal(err)
		}
		var lines []byte
		for _, f := range []string{next, file} {
			text, err := os.ReadFile(f)
			if err != nil {
				w.Fatal(err)
			}
			lines = append(lines, text...)
		}
		if err := os.WriteFile(file, lines, 0o600); err != nil {
			w.Fatal(err)
		}
		if n, err := w.engine.ResealSecrets(w.Context()); n != 1 || err != nil {
			w.Fatalf("%d were sealed anew, want 1: %v", n, err)
		}
		if err := os.Rename(next, file); err != nil { // the old key is gone
			w.Fatal(err)
		}
		w.close()
		w.open()
		w.wantSecret(w.acquire(ann).SandboxID, secretValue)
	})
}

func TestWithoutItsKeyASecretWaits(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(withSecret)
		if err := os.Rename(w.path+".key", w.path+".away"); err != nil {
			w.Fatal(err)
		}
		w.close()
		w.open()
		_, err := w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test"})
		if sandbox.CodeOf(err) != sandbox.Unavailable {
			w.Fatalf("without the key: %v", err)
		}
		if err := os.Rename(w.path+".away", w.path+".key"); err != nil {
			w.Fatal(err)
		}
		later(time.Minute)
		l := w.acquire(ann)
		if got := w.backend.Secrets(l.SandboxID); !maps.Equal(got, map[string]sandbox.Secret{"token": secretValue}) ||
			l.Generation != 1 {
			w.Errorf("generation %d has %d secrets", l.Generation, len(got))
		}
	})
}

// A new value of a secret is an event, which does not contain the value.
func TestANewValueOfASecretIsAnEvent(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(withSecret)
		w.environment(withSecret)
		events, err := w.engine.ListEvents(w.Context(),
			sandbox.EventFilter{EnvironmentID: game, Type: string(sandbox.EventEnvironmentUpdated)})
		if err != nil || len(events) != 1 || !bytes.Contains(events[0].Data, []byte(`"changed":["secret_values"]`)) ||
			bytes.Contains(events[0].Data, []byte(secretValue)) {
			t.Errorf("the events are %+v (%v)", events, err)
		}
	})
}
