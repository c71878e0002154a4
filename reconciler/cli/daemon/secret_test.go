package daemon_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/servetest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestASecretIsRotatedWhileItIsServed runs the commands beside a reconciler, which detects the change by itself.
func TestASecretIsRotatedWhileItIsServed(t *testing.T) {
	t.Parallel()
	i := servetest.New(t)
	old := webhook.NewSecret()
	file := i.Write("secrets", old+"\n")
	s := i.Serve(func(*reconciler.Config) {})
	settings := []string{"--webhook-secret-file", file, "--ledger", s.Config.LedgerURL}
	if err := s.Deliver(old, "m-1"); err != nil {
		t.Fatal(err)
	}
	code, out := command(t, append([]string{"secret", "rotate", "--output", "json"}, settings...)...)
	var rotated struct{ Secret string }
	if err := json.Unmarshal([]byte(out), &rotated); err != nil || code != exit.Done || strings.Contains(out, old) {
		t.Fatalf("it ends with %d and says %s", code, out)
	}
	testwait.NoError(t, time.Minute, "the new secret is reloaded", func() error {
		err := s.Deliver(rotated.Secret, "m-2")
		if err != nil && sandbox.CodeOf(err) != sandbox.Unauthenticated {
			t.Fatalf("with the new secret: %v", err)
		}
		return err
	})
	if err := s.Deliver(old, "m-3"); err != nil {
		t.Errorf("the old secret is rejected during the overlap: %v", err)
	}
	id := func(text string) string {
		secret, err := webhook.ParseSecret(text)
		if err != nil {
			t.Fatal(err)
		}
		return secret.ID()
	}
	_, out = command(t, append([]string{"secret", "list"}, settings...)...)
	lines := strings.Split(out, "\n")
	if len(lines) != 4 || !strings.Contains(lines[1], id(rotated.Secret)+"  active") ||
		!strings.Contains(lines[2], id(old)+"  ending") || strings.Contains(out, "whsec_") {
		t.Errorf("the list is\n%s", out)
	}
	var list struct {
		Secrets []struct {
			LastUsedAt time.Time `json:"last_used_at"`
		}
	}
	_, out = command(t, append([]string{"secret", "list", "--output", "json"}, settings...)...)
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Secrets) != 2 ||
		list.Secrets[0].LastUsedAt.IsZero() || list.Secrets[1].LastUsedAt.IsZero() {
		t.Errorf("%v: the list lacks the last use: %s", err, out)
	}
	wantCommand(t, exit.Usage, "negative", append([]string{"secret", "rotate", "--overlap", "-1h"}, settings...)...)
}
