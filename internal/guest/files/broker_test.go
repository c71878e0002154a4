//go:build linux

package files

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// The ids of a test: the calling process, the sandbox, and another user.
const (
	brokerID  = 65533
	sandboxID = 0x70000010
	otherID   = 4711
)

const (
	roleVariable = "GO_TEST_ROLE"
	baseVariable = "GO_TEST_BASE"
)

// TestMain also runs as sandbox code, which changes files all the time.
func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) == "hostile" {
		beHostile(os.Getenv(baseVariable))
		return
	}
	goleak.VerifyTestMain(m)
}

var brokerCaps = []uintptr{unix.CAP_SETUID, unix.CAP_SETGID}

// asBroker runs the calling test once more in a process with uid brokerID and only some capabilities. In that process
// it returns true, with a Worker of the sandbox's identity. Outside, prepare and check run as root before and after.
func asBroker(t *testing.T, caps []uintptr, prepare, check func(base string)) (w Worker, inside bool) {
	t.Helper()
	id := Identity{UID: sandboxID, GID: sandboxID}
	if os.Getenv(roleVariable) == "broker" {
		return Worker{identity: &id, base: os.Getenv(baseVariable)}, true
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: it starts a process of another user with capabilities")
	}
	base := newBase(t)
	if prepare != nil {
		prepare(base)
	}
	c := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1",
		"-test.timeout=5m")
	c.Dir = "/"
	c.Env = append(os.Environ(), roleVariable+"=broker", baseVariable+"="+base, "TMPDIR="+os.TempDir())
	c.SysProcAttr = &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: brokerID, Gid: brokerID},
		AmbientCaps: caps, Pdeathsig: syscall.SIGKILL,
	}
	out, err := c.CombinedOutput()
	t.Logf("as the broker:\n%s", out)
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("as the broker: %v", err)
	}
	if check != nil {
		check(base)
	}
	return w, false
}

// newBase creates a directory that stands for / of a sandbox.
func newBase(t *testing.T) string {
	t.Helper()
	base, err := os.MkdirTemp("", "sandbox")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(base)) })
	must(t, os.Chmod(base, 0o755))
	must(t, os.Mkdir(filepath.Join(base, "run"), 0o755))
	for _, dir := range []string{"workspace", "data", "run/secrets", "tmp"} {
		dir = filepath.Join(base, dir)
		must(t, os.Mkdir(dir, 0o755))
		if os.Geteuid() == 0 {
			must(t, os.Chown(dir, sandboxID, sandboxID))
		}
	}
	return base
}

// own creates a file or directory that belongs to a user.
func own(t *testing.T, p string, user int, mode os.FileMode, content string) {
	t.Helper()
	if mode.IsDir() {
		must(t, os.Mkdir(p, mode.Perm()))
	} else {
		must(t, os.WriteFile(p, []byte(content), mode))
	}
	must(t, os.Lchown(p, user, user))
	must(t, os.Chmod(p, mode.Perm()))
}

// serve makes a request, and returns its output and result.
func serve(ctx context.Context, w Worker, r channel.Request, in io.Reader) ([]byte, wire.Result) {
	if in == nil {
		in = strings.NewReader("")
	}
	var frames, out bytes.Buffer
	res := w.Serve(ctx, r, in, wire.NewWriter(&frames))
	if _, err := io.Copy(&wire.Demux{Stdout: &out}, &frames); err != nil {
		return nil, wire.Result{Problem: "frames", Message: err.Error()}
	}
	return out.Bytes(), res
}

func onFile(r wire.FileRequest) channel.Request {
	return channel.Request{Op: channel.OpFile, File: &r}
}

// framed returns content with an end mark.
func framed(content string) io.Reader {
	var b bytes.Buffer
	w := wire.NewWriter(&b)
	_, err := io.WriteString(w.Stdout(), content)
	if err := errors.Join(err, w.Result(wire.Result{})); err != nil {
		panic(err) // a buffer never fails
	}
	return &b
}

// archive returns a tar stream of some entries. Files have content.
func archive(t testing.TB, content string, entries ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(content))
		}
		if h.ModTime.IsZero() {
			h.ModTime = time.Unix(1_700_000_000, 0)
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(w, content); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// works fails the test if a result has a problem.
func works(t *testing.T, what string, res wire.Result) {
	t.Helper()
	if res.Problem != "" {
		t.Errorf("%s: %s: %s", what, res.Problem, res.Message)
	}
}

func fails(t *testing.T, what string, res wire.Result, want string) {
	t.Helper()
	if res.Problem == "" || !strings.Contains(res.Message, want) {
		t.Errorf("%s: the result is %q %q, want a problem with %q", what, res.Problem, res.Message, want)
	}
}
