package access_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// accepts reports whether the secrets of a file accept a signature of a secret at a time.
func accepts(t *testing.T, file, text string, at time.Time) bool {
	t.Helper()
	secrets, err := access.LoadSecrets(file)
	if err != nil {
		t.Fatal(err)
	}
	signer, h := secret(t, text), http.Header{}
	if err := signer.Sign(h, "m-1", at, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	_, source, err := secrets.Verify(h, []byte("{}"), at)
	return err == nil && source == signer.Source()
}

func TestARotatedSecretIsAcceptedForTheOverlap(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 8, 15, 12, 0, 0, 0, time.UTC)
	old := webhook.NewSecret()
	file := write(t, 0o600, "# of the games", old, webhook.NewSecret()+" not_after=2026-08-15T11:00:00Z",
		webhook.NewSecret()+" not_after=2026-08-15T13:00:00Z")
	next, secrets, err := access.Rotate(t.Context(), file, 24*time.Hour, now)
	if err != nil {
		t.Fatal(err)
	}
	if len(secrets) != 3 || secrets[0].ID() != secret(t, next).ID() || !secrets[0].Since.Equal(now) ||
		!secrets[2].NotAfter.Equal(now.Add(time.Hour)) {
		t.Errorf("the file holds %d secrets, the first since %s, the last until %s: want the new one, the old one, and the "+
			"one that ends as before", len(secrets), secrets[0].Since, secrets[2].NotAfter)
	}
	for what, c := range map[string]struct {
		text string
		at   time.Time
		want bool
	}{
		"the new one at once":               {next, now, true},
		"the old one in the overlap":        {old, now.Add(24*time.Hour - time.Second), true},
		"the new one in the overlap":        {next, now.Add(24*time.Hour - time.Second), true},
		"the old one after the overlap":     {old, now.Add(24*time.Hour + time.Second), false},
		"the new one after the overlap":     {next, now.Add(24*time.Hour + time.Second), true},
		"one that nobody has ever accepted": {webhook.NewSecret(), now, false},
	} {
		if got := accepts(t, file, c.text, c.at); got != c.want {
			t.Errorf("%s is accepted: %t", what, got)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(text), "# of the games\n"+next) {
		t.Errorf("the file is %s, %v", text, err)
	}
	last, _, err := access.Rotate(t.Context(), file, 0, now.Add(time.Hour))
	if err != nil || accepts(t, file, next, now.Add(time.Hour+time.Second)) ||
		!accepts(t, file, last, now.Add(time.Hour+time.Second)) {
		t.Errorf("without an overlap, the one before is accepted, or the next is not: %v", err)
	}
}

func TestRotationsAtTheSameTimeLoseNoSecret(t *testing.T) {
	t.Parallel()
	file := write(t, 0o600, webhook.NewSecret())
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	made := make([]string, 8)
	for i := range made {
		wg.Go(func() {
			var err error
			if made[i], _, err = access.Rotate(t.Context(), link, time.Hour, time.Now()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i, text := range made {
		if !accepts(t, file, text, time.Now()) {
			t.Errorf("secret %d is lost", i)
		}
	}
	info, err := os.Lstat(link)
	if err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is a file now: %v, %v", info, err)
	}
	if info, err = os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
}

func TestWhatCannotBeRotatedIsLeftAsItWas(t *testing.T) {
	t.Parallel()
	for what, file := range map[string]string{
		"others may read it": write(t, 0o640, webhook.NewSecret()),
		"broken":             write(t, 0o600, "whsec_x"),
		"absent":             "/nowhere/secrets",
	} {
		before, _ := os.ReadFile(file) // one of the files does not exist
		if _, _, err := access.Rotate(t.Context(), file, time.Hour, time.Now()); sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("%s: %v", what, err)
		}
		if after, _ := os.ReadFile(file); string(after) != string(before) {
			t.Errorf("%s: it was changed", what)
		}
	}
	if _, _, err := access.Rotate(t.Context(), write(t, 0o600, webhook.NewSecret()), -time.Hour,
		time.Now()); sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("a negative overlap: %v", err)
	}
}
