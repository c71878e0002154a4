//go:build linux

package files

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

const (
	attempts = 500
	// attemptLimit is longer than an attempt takes unless it is blocked.
	attemptLimit = 20 * time.Second
)

// beHostile is sandbox code that swaps the content of the roots forever. It keeps links, pipes and directories ready.
func beHostile(base string) {
	ready := filepath.Join(base, "ready")
	outside := filepath.Join(base, "tmp")
	things := map[string]func(p string) error{
		"up":     func(p string) error { return os.Symlink("../tmp", p) },
		"victim": func(p string) error { return os.Symlink("../tmp/victim", p) },
		"far":    func(p string) error { return os.Symlink("../../tmp/victim", p) },
		"abs":    func(p string) error { return os.Symlink(outside, p) },
		"proc":   func(p string) error { return os.Symlink("/proc/self/root"+outside, p) },
		"cwd":    func(p string) error { return os.Symlink("/proc/self/cwd", p) },
		"kmsg":   func(p string) error { return os.Symlink("/proc/kmsg", p) },
		"loop":   func(p string) error { return os.Symlink("d", p) },
		"pipe":   func(p string) error { return unix.Mkfifo(p, 0o666) },
		"file":   func(p string) error { return os.WriteFile(p, []byte("inside"), 0o600) },
		"dir": func(p string) error {
			return errors.Join(os.Mkdir(p, 0o755), unix.Mkfifo(p+"/a", 0o666), os.Symlink(outside, p+"/sub"))
		},
		"full": func(p string) error {
			return errors.Join(os.MkdirAll(p+"/sub/deep", 0o755), os.WriteFile(p+"/a", []byte("inside"), 0o644),
				os.WriteFile(p+"/sub/b", nil, 0o600))
		},
		"closed": func(p string) error { return os.Mkdir(p, 0) },
	}
	var names []string
	var err error
	for name, thing := range things {
		names = append(names, name)
		err = errors.Join(err, thing(filepath.Join(ready, name)))
	}
	targets := []string{
		"workspace/d", "workspace/d/sub", "workspace/d/a", "data/d", "data/d/sub", "data/d/a", "run/secrets/token",
		"run/secrets/other",
	}
	if err != nil {
		_, _ = fmt.Println(err)
		os.Exit(1)
	}
	_, _ = fmt.Println("ready")
	for {
		target := targets[rand.IntN(len(targets))]
		dir := openWithoutLinks(base, filepath.Dir(target))
		if dir < 0 {
			continue
		}
		name := names[rand.IntN(len(names))]
		thing := filepath.Join(ready, name)
		if errors.Is(unix.Renameat2(dir, filepath.Base(target), unix.AT_FDCWD, thing, unix.RENAME_EXCHANGE), unix.ENOENT) {
			// It may fail: the broker works too. The place may then hold a link, which it must not write through.
			if unix.Renameat(unix.AT_FDCWD, thing, dir, filepath.Base(target)) == nil {
				_ = things[name](thing)
			}
		}
		if rand.IntN(8) == 0 {
			takeUnfinished(dir, outside)
		}
		_ = unix.Close(dir)
	}
}

// openWithoutLinks keeps the hostile program itself from changing files outside. It returns -1 for a path that is no
// directory or is behind a link.
func openWithoutLinks(base, dir string) int {
	fd, err := unix.Open(base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for part := range strings.SplitSeq(dir, "/") {
		if err != nil {
			return -1
		}
		above := fd
		fd, err = unix.Openat(above, part, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		_ = unix.Close(above)
	}
	if err != nil {
		return -1
	}
	return fd
}

// takeUnfinished replaces unfinished files by links.
func takeUnfinished(dir int, outside string) {
	names, _, _ := readNames(dir, make([]byte, 32<<10), false)
	for _, name := range names {
		if strings.HasPrefix(name, ".unfinished") {
			_ = unix.Symlinkat(filepath.Join(outside, "victim"), dir, "link")
			_ = unix.Renameat(dir, "link", dir, name)
		}
	}
}

// underAttack runs an operation many times while hostile code of the sandbox's user swaps files. It fails if the
// operation blocks, or sends or changes files outside.
func underAttack(t *testing.T,
	operation func(t *testing.T, ctx context.Context, w Worker, try int) ([]byte, wire.Result)) {
	var before string
	var hostile *exec.Cmd
	w, inside := asBroker(t, brokerCaps, func(base string) {
		outside := filepath.Join(base, "tmp")
		own(t, filepath.Join(outside, "victim"), sandboxID, 0o600, "OUTSIDE")
		own(t, filepath.Join(outside, "a"), sandboxID, 0o644, "OUTSIDE")
		own(t, filepath.Join(outside, "sub"), sandboxID, os.ModeDir|0o755, "")
		own(t, filepath.Join(outside, "sub", "b"), sandboxID, 0o644, "OUTSIDE")
		own(t, filepath.Join(base, "ready"), sandboxID, os.ModeDir|0o755, "")
		before = look(t, outside)
		for _, dir := range []string{"workspace", "data"} { // devices: sandbox code cannot create one, but an operator might
			p := filepath.Join(base, dir, "zero")
			if unix.Mknod(p, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))) == nil {
				must(t, os.Chmod(p, 0o666))
			}
		}
		hostile = startHostile(t, base)
	}, func(base string) {
		if hostile.ProcessState != nil {
			t.Errorf("the hostile program ended: %s", hostile.ProcessState)
		}
		if after := look(t, filepath.Join(base, "tmp")); after != before {
			t.Errorf("outside there is\n%s\nand there was\n%s", after, before)
		}
		secrets, err := filepath.Glob(filepath.Join(base, "tmp", "*token*"))
		if err != nil || len(secrets) > 0 {
			t.Errorf("secrets lie outside: %v, %v", secrets, err)
		}
	})
	if !inside {
		return
	}
	results := map[string]int{}
	var longest time.Duration
	for try := range attempts {
		ctx, cancel := context.WithTimeout(t.Context(), attemptLimit)
		start := time.Now()
		out, res := operation(t, ctx, w, try)
		longest = max(longest, time.Since(start))
		if ctx.Err() != nil {
			t.Fatalf("attempt %d took %s: %s", try, time.Since(start), res.Message)
		}
		cancel()
		results[res.Problem]++
		if bytes.Contains(out, []byte("OUTSIDE")) {
			t.Errorf("attempt %d sent what lies outside", try)
		}
		if res.Problem == wire.ProblemFailed && results[res.Problem] < 4 {
			t.Logf("attempt %d: %s", try, res.Message)
		}
	}
	t.Logf("%d attempts, problems %v, at most %s each", attempts, results, longest.Round(time.Millisecond))
	if results[""] == 0 {
		t.Error("no attempt worked")
	}
}

func startHostile(t *testing.T, base string) *exec.Cmd {
	c := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^$")
	c.Dir = filepath.Join(base, "tmp")
	c.Env = []string{roleVariable + "=hostile", baseVariable + "=" + base}
	c.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: sandboxID, Gid: sandboxID},
		Pdeathsig:  syscall.SIGKILL,
	}
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill() // it may have ended
		_ = c.Wait()         // with the signal
	})
	said := make([]byte, 5)
	if n, err := out.Read(said); err != nil || string(said[:n]) != "ready" {
		t.Fatalf("the hostile program said %q: %v", said[:n], err)
	}
	return c
}

// look describes everything below a directory, with the time of each change.
func look(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var s unix.Stat_t
		if err := unix.Lstat(p, &s); err != nil {
			return err
		}
		content := []byte(nil)
		if d.Type().IsRegular() {
			content, err = os.ReadFile(p)
		}
		// A buffer never fails.
		_, _ = fmt.Fprintf(&all, "%s %o %d %d.%d %q\n", p, s.Mode, s.Uid, s.Ctim.Sec, s.Ctim.Nsec, content)
		return err
	}))
	return all.String()
}

var attacked = []string{"/workspace/d", "/workspace/d/sub", "/workspace/d/a", "/workspace", "/data/d", "/data/d/sub/b"}

func attackedPath(try int) []byte { return []byte(attacked[try%len(attacked)]) }

func TestGetUnderAttack(t *testing.T) {
	underAttack(t, func(_ *testing.T, ctx context.Context, w Worker, try int) ([]byte, wire.Result) {
		return serve(ctx, w, channel.Request{Op: channel.OpGet, Path: attackedPath(try)}, nil)
	})
}

func TestPutUnderAttack(t *testing.T) {
	underAttack(t, func(t *testing.T, ctx context.Context, w Worker, try int) ([]byte, wire.Result) {
		stream := archive(t, "put", tar.Header{Typeflag: tar.TypeDir, Name: "d/", Mode: 0o751},
			tar.Header{Typeflag: tar.TypeReg, Name: "d/a", Mode: 0o640},
			tar.Header{Typeflag: tar.TypeDir, Name: "d/sub/", Mode: 0o711},
			tar.Header{Typeflag: tar.TypeReg, Name: "d/sub/b", Mode: 0o604},
			tar.Header{Typeflag: tar.TypeLink, Name: "d/sub/c", Linkname: "d/a"},
			tar.Header{Typeflag: tar.TypeSymlink, Name: "d/l", Linkname: "sub"},
			tar.Header{Typeflag: tar.TypeReg, Name: "d/l/e", Mode: 0o777})
		return serve(ctx, w, channel.Request{
			Op:   channel.OpPut,
			Path: []byte([]string{"/workspace", "/data", "/workspace/d", "/data/d/sub"}[try%4]),
		}, stream)
	})
}

func TestFileOperationsUnderAttack(t *testing.T) {
	for _, op := range []wire.FileOp{wire.FileStat, wire.FileList, wire.FileWrite, wire.FileRemove, wire.FileUsage} {
		t.Run(string(op), func(t *testing.T) {
			underAttack(t, func(_ *testing.T, ctx context.Context, w Worker, try int) ([]byte, wire.Result) {
				r := wire.FileRequest{Op: op, Path: attackedPath(try), Limit: 1000, Recursive: try%2 == 0, Mode: 0o644}
				if op == wire.FileWrite {
					r.Path = append(r.Path, "/sub"[:4*(try%2)]...)
				}
				return serve(ctx, w, onFile(r), framed("written"))
			})
		})
	}
}

func TestSecretsUnderAttack(t *testing.T) {
	underAttack(t, func(t *testing.T, ctx context.Context, w Worker, _ int) ([]byte, wire.Result) {
		return serve(ctx, w, channel.Request{Op: channel.OpSecrets}, archive(t,
			"secret", tar.Header{Typeflag: tar.TypeReg, Name: "token"}, tar.Header{Typeflag: tar.TypeReg, Name: "third"}))
	})
}

func TestSaveUnderAttack(t *testing.T) {
	underAttack(t, func(_ *testing.T, ctx context.Context, w Worker, try int) ([]byte, wire.Result) {
		var out bytes.Buffer
		res := w.Save(ctx, []string{"/data", "/workspace"}[try%2], channel.Save{Limit: 1 << 30}, &out)
		return out.Bytes(), res
	})
}
