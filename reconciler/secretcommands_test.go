package reconciler_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// deliver sends a condition that a secret signs.
func (s *served) deliver(text, id string) error {
	s.Helper()
	key, err := webhook.ParseSecret(text)
	if err != nil {
		s.Fatal(err)
	}
	c, err := client.New(client.Config{URL: "http://" + s.address, Attempts: 1, Sign: func(h http.Header, id string, body []byte) error {
		return key.Sign(h, id, time.Now(), body)
	}})
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, err = c.Deliver(s.Context(), sandbox.Delivery{ID: id, Condition: sandbox.Condition{
		Type: "game.finished", Timestamp: time.Now(), Data: sandbox.ConditionData{EnvironmentID: "nowhere"}}})
	return err
}

// TestASecretIsRotatedWhileItIsServed runs the commands beside a reconciler, which nobody tells.
func TestASecretIsRotatedWhileItIsServed(t *testing.T) {
	t.Parallel()
	i := newInstall(t)
	old := webhook.NewSecret()
	file := i.write("secrets", old+"\n")
	s := i.serve(func(*reconciler.Config) {})
	settings := []string{"--webhook-secret-file", file, "--ledger", s.config.LedgerURL}
	if err := s.deliver(old, "m-1"); err != nil {
		t.Fatal(err)
	}
	code, out := command(t, append([]string{"secret", "rotate", "--output", "json"}, settings...)...)
	var rotated struct{ Secret string }
	if err := json.Unmarshal([]byte(out), &rotated); err != nil || code != cli.ExitDone || strings.Contains(out, old) {
		t.Fatalf("it ends with %d and says %s", code, out)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		err := s.deliver(rotated.Secret, "m-2")
		if err == nil {
			break
		}
		if sandbox.CodeOf(err) != sandbox.Unauthenticated || time.Now().After(end) {
			t.Fatalf("the new secret is not taken over: %v", err)
		}
	}
	if err := s.deliver(old, "m-3"); err != nil {
		t.Errorf("in the overlap, the old secret is refused: %v", err)
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
	if len(lines) != 4 || !strings.Contains(lines[1], id(rotated.Secret)+"  active") || !strings.Contains(lines[2], id(old)+"  ending") || strings.Contains(out, "whsec_") {
		t.Errorf("the list is\n%s", out)
	}
	var list struct {
		Secrets []struct {
			LastUsedAt time.Time `json:"last_used_at"`
		}
	}
	_, out = command(t, append([]string{"secret", "list", "--output", "json"}, settings...)...)
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Secrets) != 2 || list.Secrets[0].LastUsedAt.IsZero() || list.Secrets[1].LastUsedAt.IsZero() {
		t.Errorf("%v: the list does not tell when they were used: %s", err, out)
	}
	wantCommand(t, cli.ExitUsage, "negative", append([]string{"secret", "rotate", "--overlap", "-1h"}, settings...)...)
}
