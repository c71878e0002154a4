package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/relay"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
)

// rootVariable makes the test binary a relay, so that a test can kill it.
const rootVariable = "RELAY_TEST_ROOT"

func TestMain(m *testing.M) {
	if root := os.Getenv(rootVariable); root != "" {
		if err := relay.Serve(context.Background(), config(root)); err != nil {
			panic(err)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func config(root string) relay.Config {
	return relay.Config{Root: root, Owner: os.Getuid(), Log: slog.New(slog.DiscardHandler)}
}

// newRoot returns a short path, because a socket's address has at most 108 bytes.
func newRoot(t *testing.T) string {
	t.Helper()
	root, err := os.MkdirTemp("", "relay")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	return root
}

// start runs a relay in this process until the test or stop ends it.
func start(t *testing.T, root string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- relay.Serve(ctx, config(root)) }()
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the relay: %v", err)
		}
	}
	t.Cleanup(stop)
	awaitRelay(t, root)
	return stop
}

func awaitRelay(t *testing.T, root string) {
	t.Helper()
	eventually(t, "the relay answers", func() error {
		_, err := directClient(root).List(t.Context())
		return err
	})
}

func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	testwait.NoError(t, 20*time.Second, what, try)
}

func direct(root string) relay.Open {
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(root, relay.ControlDir, relay.ControlSocket))
	}
}

func directClient(root string) *relay.Client { return relay.NewClient(direct(root), nil) }

// throughCommand is a client whose connections all use one command.
func throughCommand(t *testing.T, root string) *relay.Client {
	t.Helper()
	c := relay.NewClient(nil, func(context.Context) (net.Conn, error) {
		here, there := net.Pipe()
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- relay.Connect(ctx, root, there) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("the command: %v", err)
			}
		})
		return here, nil
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ways are the kinds of clients of a relay.
func ways(t *testing.T, root string) map[string]*relay.Client {
	return map[string]*relay.Client{"as a file": directClient(root), "through a command": throughCommand(t, root)}
}

// guest is a sandbox that always parks a connection, and echoes its input.
func guest(t *testing.T, root, id string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			conn, err := dialSandbox(ctx, root, id)
			if err != nil {
				time.Sleep(time.Millisecond) //nolint:forbidigo // the pace of a sandbox that was refused
				continue
			}
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			_, _ = io.Copy(conn, conn) // until the other end closes
			stop()
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

func dialSandbox(ctx context.Context, root, id string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", socketOf(root, id))
}

func socketOf(root, id string) string {
	return filepath.Join(root, relay.SandboxDir(id), relay.ChannelSocket)
}

// exchange sends a text through a carrier and expects it back.
func exchange(conn net.Conn, text string) error {
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return err
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if string(got) != text {
		return fmt.Errorf("%q came back as %q", text, got)
	}
	return nil
}

// use dials a sandbox and exchanges a word with it.
func use(t *testing.T, c *relay.Client, id string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	conn, err := c.Dial(ctx, id)
	if err != nil {
		return err
	}
	defer conn.Close()
	return exchange(conn, "hello "+id)
}

func mustAdd(t *testing.T, c *relay.Client, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := c.Add(t.Context(), id, relay.Accounts{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAClientReachesTheSandboxThatItNames(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	start(t, root)
	mustAdd(t, directClient(root), "one", "two")
	guest(t, root, "one")
	guest(t, root, "two")
	for name, c := range ways(t, root) {
		for range 20 {
			if err := errors.Join(use(t, c, "one"), use(t, c, "two")); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
}

func TestTheFilesOfASandboxAreThoseOfTheLatestAdd(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	start(t, root)
	c, dir := directClient(root), filepath.Join(root, relay.SandboxDir("one"))
	largest := relay.Accounts{
		Passwd: bytes.Repeat([]byte{0xff}, relay.MaxAccounts),
		Group:  bytes.Repeat([]byte{'g'}, relay.MaxAccounts),
	}
	for _, a := range []relay.Accounts{
		{}, {Passwd: []byte("old")}, largest, {Passwd: []byte("new"), Group: []byte("new too")},
	} {
		if err := c.Add(t.Context(), "one", a); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string][]byte{relay.PasswdFile: a.Passwd, relay.GroupFile: a.Group} {
			if want == nil {
				continue
			}
			got, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s has %d bytes, want %d: %v", name, len(got), len(want), err)
			}
			if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o444 {
				t.Errorf("%s: %v, %v", name, info.Mode(), err)
			}
		}
	}
	if err := c.Remove(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory stays: %v", err)
	}
}

func TestManyBytesPassBothWaysAndTheirEndDoesToo(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	start(t, root)
	mustAdd(t, directClient(root), "one")
	guest(t, root, "one")
	content := bytes.Repeat([]byte("0123456789abcdef"), 4<<20/16)
	for name, c := range ways(t, root) {
		conn, err := c.Dial(t.Context(), "one")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		sent := make(chan error, 1)
		go func() {
			_, err := conn.Write(content)
			half, ok := conn.(interface{ CloseWrite() error })
			if !ok {
				err = errors.New("it cannot be half closed")
			} else if err == nil {
				err = half.CloseWrite()
			}
			sent <- err
		}()
		got, err := io.ReadAll(conn)
		if err := errors.Join(err, <-sent); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %d of %d bytes came back, %v", name, len(got), len(content), err)
		}
		_ = conn.Close()
	}
}

func TestAClientThatLeavesEndsTheSandboxsConnection(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	start(t, root)
	for name, c := range ways(t, root) {
		mustAdd(t, c, "one")
		sandbox, err := dialSandbox(t.Context(), root, "one")
		if err != nil {
			t.Fatal(err)
		}
		conn, err := c.Dial(t.Context(), "one")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_ = conn.Close()
		_ = sandbox.SetDeadline(time.Now().Add(10 * time.Second))
		if n, err := io.Copy(io.Discard, sandbox); n != 0 || err != nil {
			t.Errorf("%s: the sandbox read %d bytes, %v", name, n, err)
		}
		_ = sandbox.Close()
	}
}

func TestASandboxThatLeavesEndsTheClientsConnection(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	start(t, root)
	for name, c := range ways(t, root) {
		mustAdd(t, c, "one")
		sandbox, err := dialSandbox(t.Context(), root, "one")
		if err != nil {
			t.Fatal(err)
		}
		conn, err := c.Dial(t.Context(), "one")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_ = sandbox.Close()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		if n, err := io.Copy(io.Discard, conn); n != 0 || err != nil {
			t.Errorf("%s: the client read %d bytes, %v", name, n, err)
		}
		_ = conn.Close()
	}
}

func TestALentConnectionDoesNotWakeTheRelay(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	running := killable(t, root)
	mustAdd(t, directClient(root), "sandbox-a")
	guest(t, root, "sandbox-a")
	conn, err := directClient(root).Dial(t.Context(), "sandbox-a")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const exchanges = 2000
	before := wakes(t, running.Process.Pid)
	for range exchanges {
		if err := exchange(conn, "hello"); err != nil {
			t.Fatal(err)
		}
	}
	if n := wakes(t, running.Process.Pid) - before; n > exchanges/4 { // its runtime wakes it now and then
		t.Errorf("%d exchanges between a sandbox and its client woke the relay %d times", exchanges, n)
	}
}

// wakes returns how often threads of a process have waited.
func wakes(t *testing.T, pid int) (n int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if count, found := strings.CutPrefix(line, "voluntary_ctxt_switches:"); found {
				one, err := strconv.Atoi(strings.TrimSpace(count))
				if err != nil {
					t.Fatal(err)
				}
				n += one
			}
		}
	}
	return n
}

func TestDialWaitsForTheSandbox(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	start(t, root)
	c := directClient(root)
	mustAdd(t, c, "one")
	dialed := make(chan error, 1)
	go func() { dialed <- use(t, c, "one") }()
	guest(t, root, "one")
	if err := <-dialed; err != nil {
		t.Error(err)
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	start(t, root)
	for name, c := range ways(t, root) {
		mustAdd(t, c, "silent")
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err := c.Dial(ctx, "silent")
		cancel()
		if !errors.Is(err, relay.ErrAbsent) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAConnectionThatTheSandboxHasLeftIsNotGiven(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	start(t, root)
	c := directClient(root)
	mustAdd(t, c, "one")
	for range 5 {
		conn, err := dialSandbox(t.Context(), root, "one")
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
	guest(t, root, "one")
	for range 10 {
		if err := use(t, c, "one"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatARelayKnowsIsWhatWasAddedAndNotRemoved(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	start(t, root)
	for name, c := range ways(t, root) {
		mustAdd(t, c, "a", "b", "b")
		guest(t, root, "b")
		conn, err := c.Dial(t.Context(), "b")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for range 2 {
			if err := c.Remove(t.Context(), "b"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: a connection outlives its sandbox", name)
		}
		_ = conn.Close()
		if ids, err := c.List(t.Context()); err != nil || !slices.Equal(ids, []string{"a"}) {
			t.Errorf("%s: lists %q, %v", name, ids, err)
		}
		for what, err := range map[string]error{"dial": use(t, c, "b"), "end": c.End(t.Context(), "b")} {
			if !errors.Is(err, relay.ErrUnknown) {
				t.Errorf("%s: %s: %v", name, what, err)
			}
		}
		if _, err := os.Stat(filepath.Dir(socketOf(root, "b"))); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the directory: %v", name, err)
		}
	}
}

func TestEndIsAFileThatTheSandboxSees(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	stop := start(t, root)
	c := directClient(root)
	mustAdd(t, c, "one")
	for range 2 {
		if err := c.End(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	start(t, root)
	mustAdd(t, c, "one")
	if info, err := os.Stat(filepath.Join(root, relay.SandboxDir("one"), relay.EndFile)); err != nil ||
		info.Mode() != 0o444 {
		t.Errorf("the file is %v, %v", info, err)
	}
}

func TestPathsHaveTheModesThatKeepOthersOut(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	start(t, root)
	mustAdd(t, directClient(root), "one")
	for path, mode := range map[string]os.FileMode{
		relay.ControlDir: 0o700 | os.ModeDir, relay.ControlDir + "/" + relay.ControlSocket: 0o600 | os.ModeSocket,
		filepath.Dir(relay.SandboxDir("one")): 0o711 | os.ModeDir, relay.SandboxDir("one"): 0o711 | os.ModeDir,
		relay.SandboxDir("one") + "/" + relay.ChannelSocket: 0o600 | os.ModeSocket,
	} {
		if info, err := os.Stat(filepath.Join(root, path)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

// killable is a relay in its own process.
func killable(t *testing.T, root string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), rootVariable+"="+root)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(cmd) })
	awaitRelay(t, root)
	return cmd
}

func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill() // it may have ended
	_ = cmd.Wait()
}
