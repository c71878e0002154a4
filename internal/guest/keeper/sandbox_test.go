//go:build linux

package keeper_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"), goleak.Cleanup(func(code int) {
			for _, dir := range built {
				if err := os.RemoveAll(dir); err != nil {
					fmt.Fprintln(os.Stderr, err)
					code = 1
				}
			}
			os.Exit(code)
		}))
}

// built lists the directories of programs that tests have built.
var built []string

// user is the sandbox's own user in these tests.
const user = 0x70000ab2

// program builds the guest, once.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "keeper")
	if err != nil {
		return "", err
	}
	built = append(built, dir)
	path := filepath.Join(dir, "guest")
	c := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", path, "../cmd/guest")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, errors.Join(os.Chmod(dir, 0o755), os.Chmod(path, 0o711))
})

// box is a sandbox in a container. The test answers its channel.
type box struct {
	name   string
	client *channel.Client
	socket string
	lines  net.Listener
}

// options change a box.
type options struct {
	lifetime time.Duration
	uid      int
	run      []string // further arguments of docker run
	keep     []string // further arguments of guest keep
}

// start starts a sandbox.
func start(t *testing.T, o options) *box {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("user 0 is needed to give a socket to process 1's user")
	}
	if err := exec.Command("docker", "version").Run(); err != nil {
		t.Skip("a Docker Engine is needed: ", err)
	}
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	if o.lifetime == 0 {
		o.lifetime = 5 * time.Minute
	}
	if o.uid == 0 {
		o.uid = user
	}
	dir, err := os.MkdirTemp("", "channel")
	if err != nil {
		t.Fatal(err)
	}
	b := &box{name: "keeper-" + sandbox.RandomIDs(12), socket: filepath.Join(dir, "channel.sock")}
	if b.lines, err = net.Listen("unix", b.socket); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.Chmod(dir, 0o755), os.Chown(b.socket, guest.KeeperID, guest.KeeperID), os.Chmod(b.socket, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	ends, err := json.Marshal(wire.Ends{At: time.Now().Add(o.lifetime), Left: o.lifetime})
	if err != nil {
		t.Fatal(err)
	}
	u := strconv.Itoa(max(o.uid, 0))
	args := []string{"run", "-d", "--name", b.name, "--network", "none", "--user", "0:0", "--cap-drop", "ALL",
		"--security-opt", "no-new-privileges", "--pids-limit", "200",
		"--memory", "256m", "--memory-swap", "256m", "--read-only", "--ulimit", "nofile=1024:1024", "--ulimit", "core=0",
		"--tmpfs", "/tmp:mode=1777,uid=" + u + ",gid=" + u, "--tmpfs", "/run:mode=755,uid=" + u + ",gid=" + u,
		"--tmpfs", "/run/secrets:mode=700,uid=" + u + ",gid=" + u,
		"-v", "/workspace", "-v", "/data", "-v", path + ":" + guest.Path + ":ro",
		"-v", dir + ":" + guest.ChannelDir + ":ro", "-e", "HOME=/workspace", "-e", "PATH=/bin:/usr/bin:/sbin"}
	for _, c := range []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETUID", "SETGID", "SETPCAP", "KILL"} {
		args = append(args, "--cap-add", c)
	}
	args = append(append(args, o.run...), "--entrypoint", guest.Path, dockertest.Busybox(t),
		"keep", "-uid", u, "-gid", u, "-ends", string(ends),
		"-channel", guest.ChannelSocket, "-pids", "200", "-own-uid")
	b.docker(t, append(args, o.keep...)...)
	redial := channel.Backoff{Max: 200 * time.Millisecond}
	b.client = channel.NewClient(channel.ClientConfig{Redial: redial, Dial: func(ctx context.Context) (net.Conn, error) {
		l, ok := b.lines.(*net.UnixListener)
		if !ok {
			return nil, errors.New("not a unix socket")
		}
		deadline, _ := ctx.Deadline()
		if err := l.SetDeadline(deadline); err != nil {
			return nil, err
		}
		return l.Accept()
	}})
	t.Cleanup(func() {
		if t.Failed() {
			out, err := exec.Command("docker", "logs", "--tail", "60", b.name).CombinedOutput()
			t.Logf("log of process 1: %s %v", out, err)
		}
		b.docker(t, "rm", "-f", "-v", b.name)
		if err := errors.Join(b.client.Close(), b.lines.Close(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *box) docker(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("docker", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("docker %s: %v: %s", args[0], err, out)
	}
	return string(bytes.TrimSpace(out))
}

// call carries out an operation within a minute.
func (b *box) call(r channel.Request, s channel.Streams) (wire.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return b.client.Call(ctx, r, s)
}

// run runs a shell line, and returns its output.
func (b *box) run(t *testing.T, line string) (stdout, stderr string, res wire.Result) {
	t.Helper()
	return b.exec(t, channel.Request{ID: sandbox.RandomIDs(12), Exec: &channel.Exec{
		Args: []string{"sh", "-c", line}, Cwd: "/workspace", Timeout: 50 * time.Second}}, "")
}

func (b *box) exec(t *testing.T, r channel.Request, stdin string) (stdout, stderr string, res wire.Result) {
	t.Helper()
	var out, errOut bytes.Buffer
	r.Op = channel.OpExec
	s := channel.Streams{Stdout: &out, Stderr: &errOut}
	if stdin != "" {
		r.Exec.Stdin, s.Stdin = true, strings.NewReader(stdin)
	}
	res, err := b.call(r, s)
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), errOut.String(), res
}

func line(text string) *channel.Exec {
	return &channel.Exec{Args: []string{"sh", "-c", text}, Cwd: "/workspace", Timeout: 50 * time.Second}
}
