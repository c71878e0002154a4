package release_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// release is a directory with the files that install.sh downloads, at a URL.
type release struct {
	dir, url string
}

const (
	version = "1.2.3"
	sums    = "sandbox_1.2.3_SHA256SUMS"
	marker  = "github.com/sandbox-lease/terraform-provider-sandbox" // in every program of ours
)

var archive = "sandbox_1.2.3_linux_" + runtime.GOARCH + ".tar.gz"

func newRelease(t *testing.T) release {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the release of the test has Linux only")
	}
	for _, program := range []string{"curl", "tar", "sha256sum"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("install.sh needs %s", program)
		}
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	w := tar.NewWriter(z)
	program := "#!/bin/sh\n# " + marker + "\necho " + version + "\n"
	must(t, w.WriteHeader(&tar.Header{Name: "sandbox", Mode: 0o755, Size: int64(len(program))}))
	_, err := w.Write([]byte(program))
	must(t, err)
	must(t, w.Close())
	must(t, z.Close())

	r := release{dir: t.TempDir()}
	r.write(t, archive, packed.String())
	r.write(t, sums, fmt.Sprintf("%x  other.deb\n%x  %s\n", sha256.Sum256(nil), sha256.Sum256(packed.Bytes()), archive))
	server := httptest.NewServer(http.FileServer(http.Dir(r.dir)))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r release) write(t *testing.T, name, content string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(r.dir, name), []byte(content), 0o600))
}

// install runs install.sh with a home and a PATH that begins with bin, and returns its output.
func (r release) install(t *testing.T, bin string, args ...string) (string, error) {
	t.Helper()
	args = append([]string{filepath.Join(root, "scripts/install.sh"), "--version", version, "--from", r.url}, args...)
	c := exec.CommandContext(t.Context(), "sh", args...)
	c.Env = append(os.Environ(), "HOME="+t.TempDir(), "PATH="+bin+":/usr/bin:/bin")
	out, err := c.CombinedOutput()
	return string(out), err
}

// runs checks that a program is the release's.
func runs(t *testing.T, program string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program).Output()
	must(t, err)
	if got := strings.TrimSpace(string(out)); got != version {
		t.Errorf("%s is %q", program, got)
	}
}

// nothingIn checks that a directory is empty.
func nothingIn(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	if len(entries) != 0 {
		t.Errorf("%s has %v", dir, entries)
	}
}

func TestInstallTwice(t *testing.T) {
	t.Parallel()
	r, dir := newRelease(t), t.TempDir()
	for range 2 { // the second installation replaces the first
		out, err := r.install(t, dir, "--dir", dir)
		if err != nil || !strings.Contains(out, "installed as "+dir+"/sandbox") {
			t.Fatalf("install.sh: %v: %s", err, out)
		}
		runs(t, filepath.Join(dir, "sandbox"))
	}
}

func TestInstallLeavesAnotherProgramOfThatName(t *testing.T) {
	t.Parallel()
	r, dir, bin := newRelease(t), t.TempDir(), t.TempDir()
	selinux := filepath.Join(bin, "sandbox")
	must(t, os.WriteFile(selinux, []byte("#!/bin/sh\n"), 0o700)) // #nosec G306 -- a program
	out, err := r.install(t, bin, "--dir", dir)
	if err != nil || !strings.Contains(out, selinux+" is another program") || !strings.Contains(out, "Add "+dir+" to PATH") {
		t.Fatalf("install.sh: %v: %s", err, out)
	}
	runs(t, filepath.Join(dir, "sbl"))
}

func TestInstallRefusesWhatIsNotTheRelease(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(t *testing.T, r release)
		args   []string
		says   string
	}{
		"another archive": {
			func(t *testing.T, r release) { r.write(t, archive, "something else") }, nil, "the checksum of " + archive + " is wrong"},
		"an archive without a checksum": {
			func(t *testing.T, r release) { r.write(t, sums, "") }, nil, "does not name " + archive},
		"no archive": {
			func(t *testing.T, r release) { must(t, os.Remove(filepath.Join(r.dir, archive))) }, nil, "does release 1.2.3 exist?"},
		"an unknown option": {
			func(*testing.T, release) {}, []string{"--prefix", "/"}, "unknown option --prefix"},
		"an option without its value": {
			func(*testing.T, release) {}, []string{"--dir"}, "--dir needs a value"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, dir := newRelease(t), t.TempDir()
			c.change(t, r)
			out, err := r.install(t, dir, append([]string{"--dir", dir}, c.args...)...)
			if err == nil || !strings.Contains(out, c.says) {
				t.Errorf("install.sh ends with %v: %s", err, out)
			}
			nothingIn(t, dir)
		})
	}
}

// TestInstallVerifiesTheSignature: with --key, it installs only a release signed with that key.
func TestInstallVerifiesTheSignature(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("gpg"); err != nil {
		t.Skip("there is no gpg")
	}
	r := newRelease(t)
	home, err := os.MkdirTemp("", "gpg") // gpg's socket needs a short path
	must(t, err)
	t.Cleanup(func() {
		_ = exec.Command("gpgconf", "--homedir", home, "--kill", "all").Run() // #nosec G204 -- the test's own
		must(t, os.RemoveAll(home))
	})
	gpg := func(args ...string) {
		t.Helper()
		args = append([]string{"--homedir", home, "--batch", "--yes", "--quiet", "--passphrase", ""}, args...)
		if out, err := exec.CommandContext(t.Context(), "gpg", args...).CombinedOutput(); err != nil {
			t.Fatalf("gpg %v: %v: %s", args, err, out)
		}
	}
	keys := t.TempDir()
	for _, name := range []string{"release", "other"} {
		gpg("--quick-generate-key", name+"@example.com", "ed25519", "sign", "1d")
		gpg("--armor", "--output", filepath.Join(keys, name), "--export", name+"@example.com")
	}
	dir := t.TempDir()
	key := []string{"--dir", dir, "--key", filepath.Join(keys, "release")}
	refused := func(says string) {
		t.Helper()
		out, err := r.install(t, dir, key...)
		if err == nil || !strings.Contains(out, says) {
			t.Errorf("install.sh ends with %v: %s", err, out)
		}
		nothingIn(t, dir)
	}
	list := filepath.Join(r.dir, sums)
	refused("is the release signed?")
	gpg("--local-user", "other@example.com", "--output", list+".sig", "--detach-sign", list)
	refused("is not by the key")
	gpg("--local-user", "release@example.com", "--output", list+".sig", "--detach-sign", list)
	if out, err := r.install(t, dir, key...); err != nil {
		t.Fatalf("install.sh: %v: %s", err, out)
	}
	runs(t, filepath.Join(dir, "sandbox"))
}
