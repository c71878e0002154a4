package seal_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/seal"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func keyFile(t *testing.T) string { return filepath.Join(t.TempDir(), "ledger.db.key") }

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func wantCode(t *testing.T, err error, code sandbox.Code) {
	t.Helper()
	if sandbox.CodeOf(err) != code {
		t.Errorf("the error has code %q, want %q: %v", sandbox.CodeOf(err), code, err)
	}
}

func TestWhatIsSealedOpensForItsPurposeOnly(t *testing.T) {
	t.Parallel()
	k := seal.InFile(keyFile(t), true)
	sealed := must[[]byte](t)(k.Seal([]byte("hunter2"), "token of catan-7"))
	if bytes.Contains(sealed, []byte("hunter2")) {
		t.Error("the text shows")
	}
	if again := must[[]byte](t)(k.Seal([]byte("hunter2"), "token of catan-7")); bytes.Equal(sealed, again) {
		t.Error("equal texts are sealed alike")
	}
	if text := must[[]byte](t)(k.Open(sealed, "token of catan-7")); string(text) != "hunter2" {
		t.Errorf("it opens as %q", text)
	}
	_, err := k.Open(sealed, "token of catan-8")
	wantCode(t, err, sandbox.Failed)
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		if text, err := k.Open(changed, "token of catan-7"); err == nil {
			t.Fatalf("with byte %d changed it opens as %q", i, text)
		}
	}
	_, err = k.Open(sealed[:4], "token of catan-7")
	wantCode(t, err, sandbox.Failed)
}

func TestAnotherKeyOpensNothing(t *testing.T) {
	t.Parallel()
	sealed := must[[]byte](t)(seal.InFile(keyFile(t), true).Seal([]byte("hunter2"), "token"))
	other := seal.InFile(keyFile(t), true)
	must[[]byte](t)(other.Seal(nil, "token"))
	_, err := other.Open(sealed, "token")
	wantCode(t, err, sandbox.Unavailable) // the key may be added
	_, err = (*seal.Keys)(nil).Open(sealed, "token")
	wantCode(t, err, sandbox.Unavailable)
	_, err = (*seal.Keys)(nil).Seal(nil, "token")
	wantCode(t, err, sandbox.Invalid)
	_, err = seal.InFile(keyFile(t), false).Seal(nil, "token")
	wantCode(t, err, sandbox.Invalid)
}

func TestANewKeySealsAndOldOnesStillOpen(t *testing.T) {
	t.Parallel()
	file, next := keyFile(t), keyFile(t)
	k := seal.InFile(file, true)
	sealed := must[[]byte](t)(k.Seal([]byte("hunter2"), "token"))
	if must[bool](t)(k.Stale(sealed)) {
		t.Error("what was just sealed is stale")
	}
	if err := seal.Generate(next); err != nil {
		t.Fatal(err)
	}
	lines := append(must[[]byte](t)(os.ReadFile(next)), must[[]byte](t)(os.ReadFile(file))...)
	if err := os.WriteFile(file, append([]byte("# rotated\n\n"), lines...), 0o600); err != nil {
		t.Fatal(err)
	}
	if !must[bool](t)(k.Stale(sealed)) {
		t.Error("what the old key sealed is not stale")
	}
	fresh := must[[]byte](t)(k.Seal([]byte("hunter2"), "token"))
	if must[bool](t)(k.Stale(fresh)) {
		t.Error("what the new key sealed is stale")
	}
	// A program that has read the file reads it again for an unknown key.
	for _, s := range [][]byte{sealed, fresh} {
		if text := must[[]byte](t)(seal.InFile(file, false).Open(s, "token")); string(text) != "hunter2" {
			t.Errorf("it opens as %q", text)
		}
	}
	if text := must[[]byte](t)(seal.InFile(next, false).Open(fresh, "token")); string(text) != "hunter2" {
		t.Errorf("under the new key alone it opens as %q", text)
	}
}

func TestProgramsThatMakeOneKeyFileAtOnceAgree(t *testing.T) {
	t.Parallel()
	file := keyFile(t)
	sealed := make([][]byte, 8)
	var wg sync.WaitGroup
	for i := range sealed {
		wg.Go(func() {
			var err error
			if sealed[i], err = seal.InFile(file, true).Seal([]byte("hunter2"), "token"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, s := range sealed {
		must[[]byte](t)(seal.InFile(file, false).Open(s, "token"))
	}
	if left := must[[]os.DirEntry](t)(os.ReadDir(filepath.Dir(file))); len(left) != 1 {
		t.Errorf("beside the key file lies %v", left)
	}
}

func TestAKeyFileThatCannotBeTrustedIsRefused(t *testing.T) {
	t.Parallel()
	good := keyFile(t)
	if err := seal.Generate(good); err != nil {
		t.Fatal(err)
	}
	line := string(must[[]byte](t)(os.ReadFile(good)))
	for name, row := range map[string]struct {
		text string
		mode os.FileMode
		says string
	}{
		"that others may read": {line, 0o640, "chmod 600"},
		"without a key":        {"# nothing\n", 0o600, "no key"},
		"with a short key":     {"sandbox-key-1 Zm9v\n", 0o600, "line 1"},
		"of another kind":      {strings.Replace(line, "key-1", "key-9", 1), 0o600, "line 1"},
		"that is no key file":  {strings.Repeat("x", 100_000), 0o600, "larger"},
	} {
		file := keyFile(t)
		if err := os.WriteFile(file, []byte(row.text), row.mode); err != nil {
			t.Fatal(err)
		}
		_, err := seal.InFile(file, true).Seal(nil, "token")
		if sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), row.says) ||
			strings.Contains(err.Error(), strings.Fields(line)[1]) {
			t.Errorf("a file %s: %v", name, err)
		}
	}
}
