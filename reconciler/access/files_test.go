package access_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
)

// vectorSecret is a signing secret.
const vectorSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func secret(t *testing.T, text string) webhook.Secret {
	t.Helper()
	s, err := webhook.ParseSecret(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t *testing.T, mode os.FileMode, lines ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, mode); err != nil { // unlike WriteFile's mode, the umask does not change it
		t.Fatal(err)
	}
	return file
}

func TestLoadSecrets(t *testing.T) {
	t.Parallel()
	secrets, err := access.LoadSecrets(write(t, 0o600,
		"# rotation of 2026", "", "  "+vectorSecret+"  not_after=2026-12-31T00:00:00Z", webhook.NewSecret()))
	if err != nil || len(secrets) != 2 {
		t.Fatalf("LoadSecrets = %d secrets, %v", len(secrets), err)
	}
	if want := time.Date(2026, 12, 31, 0, 0, 0, 0, time.UTC); !secrets[0].NotAfter.Equal(want) ||
		!secrets[1].NotAfter.IsZero() {
		t.Errorf("the secrets end at %v and %v", secrets[0].NotAfter, secrets[1].NotAfter)
	}
}

func TestLoadTokens(t *testing.T) {
	t.Parallel()
	admin, game := access.NewToken(), access.NewToken()
	tokens, err := access.LoadTokens(write(t, 0o400, "terraform "+admin,
		"game-server "+game+" environments=catan-*,rpg-7"))
	if err != nil || len(tokens) != 2 {
		t.Fatalf("LoadTokens = %v, %v", tokens, err)
	}
	if got, ok := tokens.Lookup(access.HashOf(admin)); !ok || got.Source() != "token:terraform" ||
		!got.Allows("anything") || !got.Allows("") {
		t.Errorf("the first token is %v, %v", got, ok)
	}
	got, ok := tokens.Lookup(access.HashOf(game))
	if !ok {
		t.Fatal("the second token is not found")
	}
	for environment, want := range map[string]bool{
		"catan-1":  true,
		"rpg-7":    true,
		"rpg-70":   false,
		"xcatan-1": false,
		"":         false,
	} {
		if got.Allows(environment) != want {
			t.Errorf("Allows(%q) = %v", environment, !want)
		}
	}
	for _, wrong := range []string{"", admin + "x", admin[1:], game + " "} {
		if _, ok := tokens.Lookup(access.HashOf(wrong)); ok {
			t.Errorf("Lookup accepts %q", wrong)
		}
	}
	if text := fmt.Sprintf("%v %+v %#v", tokens, got, got); strings.Contains(text, game) || strings.Contains(text, admin) {
		t.Errorf("a token prints as %s", text)
	}
}

func TestCredentialFilesAreRefusedWithAHint(t *testing.T) {
	t.Parallel()
	loadSecrets := func(f string) error { _, err := access.LoadSecrets(f); return err }
	loadTokens := func(f string) error { _, err := access.LoadTokens(f); return err }
	token := access.NewToken()
	for name, test := range map[string]struct {
		load func(string) error
		mode os.FileMode
		line string
		want string
	}{
		"secrets that a group reads": {loadSecrets, 0o640, vectorSecret, "chmod 600"},
		"tokens that all read":       {loadTokens, 0o604, "a " + token, "chmod 600"},
		"tokens that all write":      {loadTokens, 0o602, "a " + token, "chmod 600"},
		"no secret":                  {loadSecrets, 0o600, "# none", "no secret"},
		"no token":                   {loadTokens, 0o600, "", "no token"},
		"an empty secret":            {loadSecrets, 0o600, "\nwhsec_", "line 2"},
		"a short secret":             {loadSecrets, 0o600, "whsec_AAAA", "24 to 64"},
		"a wrong option":             {loadSecrets, 0o600, vectorSecret + " until=2027", "not_after"},
		"a wrong end":                {loadSecrets, 0o600, vectorSecret + " not_after=tomorrow", "RFC 3339"},
		"a short token":              {loadTokens, 0o600, "a 12345678901234567890123", "fewer than 24"},
		"a token without a name":     {loadTokens, 0o600, token, "want <name> <token>"},
		"a wrong token option":       {loadTokens, 0o600, "a " + token + " env=x", "environments="},
		"a wrong pattern":            {loadTokens, 0o600, "a " + token + " environments=[", "not a pattern"},
		"a name twice":               {loadTokens, 0o600, "a " + token + "\na " + token, "twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := test.load(write(t, test.mode, test.line))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("the error is %v, without %q", err, test.want)
			}
			if strings.Contains(err.Error(), token) || strings.Contains(err.Error(), "MfKQ9r8GKY") {
				t.Errorf("the error shows a credential: %v", err)
			}
		})
	}
	if err := loadTokens(filepath.Join(t.TempDir(), "missing")); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("a missing file: %v", err)
	}
}

func TestReadTokenTakesEitherForm(t *testing.T) {
	t.Parallel()
	token := access.NewToken()
	for _, line := range []string{
		token, "terraform " + token, "# mine\nterraform " + token + " environments=a\nother " + access.NewToken(),
	} {
		if got, err := access.ReadToken(write(t, 0o600, line)); err != nil || got != token {
			t.Errorf("ReadToken of %q = %q, %v", line, got, err)
		}
	}
}
