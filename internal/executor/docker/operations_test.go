package docker_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// user uses a sandbox through its channel.
type user struct {
	x *docker.Executor
	h driver.Handle
}

// operations are all kinds of use.
func (u user) operations() map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"a command":              u.command,
		"a line of a session":    u.session,
		"a detached command":     u.detached,
		"a verifier":             u.verifier,
		"a process":              u.process,
		"a connection to a port": u.connection,
		"files":                  u.files,
		"archives in and out":    u.archives,
		"secrets":                u.secrets,
		"the end of a command":   func(ctx context.Context) error { return u.x.EndExec(ctx, u.h, "unknown", "") },
	}
}

// exec runs a command and checks its output.
func (u user) exec(ctx context.Context, r sandbox.ExecRequest, want string) error {
	r, err := r.Normalize()
	if err != nil {
		return err
	}
	res, err := u.x.Exec(ctx, u.h, r)
	if err == nil && (string(res.Stdout) != want || res.ExitCode != 0) {
		err = fmt.Errorf("%v %s: %q, %q, exit code %d", r.Command, r.Shell, res.Stdout, res.Stderr, res.ExitCode)
	}
	return err
}

func (u user) command(ctx context.Context) error {
	const size = 300 << 10 // more than a channel's window
	in := strings.Repeat("input of a command\n", size/19)
	return u.exec(ctx, sandbox.ExecRequest{Command: []string{"cat"}, Stdin: strings.NewReader(in)}, in)
}

func (u user) session(ctx context.Context) error {
	return u.exec(ctx, sandbox.ExecRequest{Session: "s", Shell: "cd /data && export KEPT=1 && pwd", Cwd: "/workspace"},
		"/data\n")
}

func (u user) verifier(ctx context.Context) error {
	return u.exec(ctx, sandbox.ExecRequest{As: sandbox.AsVerifier, Command: []string{"echo", "verdict"}}, "verdict\n")
}

func (u user) detached(ctx context.Context) error {
	id := sandbox.RandomIDs(sandbox.SandboxIDLength)
	r, err := sandbox.ExecRequest{ID: id, Detach: true, Command: []string{"sh", "-c", "echo begun; sleep 0.2; exit 4"}}.
		Normalize()
	if err != nil {
		return err
	}
	return u.followed(ctx, id, "begun\n", 4, func(ctx context.Context) error {
		_, err := u.x.Exec(ctx, u.h, r)
		return err
	})
}

func (u user) process(ctx context.Context) error {
	p := driver.ProcessRun{ID: sandbox.RandomIDs(sandbox.SandboxIDLength), Cwd: "/workspace",
		Command: []string{"sh", "-c", "echo up; sleep 0.2; exit 5"}}
	return u.followed(ctx, p.ID, "up\n", 5, func(ctx context.Context) error {
		_, err := u.x.RunProcess(ctx, u.h, p)
		return err
	})
}

func (u user) connection(ctx context.Context) error {
	serves := driver.ProcessRun{ID: sandbox.RandomIDs(sandbox.SandboxIDLength), Cwd: "/workspace",
		Command: []string{"sh", "-c", "echo heard | nc -l -p 7001"}}
	var out bytes.Buffer
	served := make(chan error, 1)
	go func() {
		_, err := u.x.RunProcess(ctx, u.h, serves)
		served <- err
	}()
	err := u.x.Connect(ctx, u.h, 7001, driver.Connection{Opened: func() {}, From: strings.NewReader(""), To: &out})
	if err := errors.Join(err, u.x.EndExec(ctx, u.h, serves.ID, "")); err != nil || out.String() != "heard\n" {
		return fmt.Errorf("the program said %q, %w", out.String(), err)
	}
	if err := <-served; err != nil && sandbox.ReasonOf(err) != sandbox.ReasonExecFailed { // ended above
		return err
	}
	return nil
}

// followed starts a command, stops waiting for it, and follows it to its end.
func (u user) followed(ctx context.Context, id, want string, code int, start func(context.Context) error) error {
	started, leave := context.WithCancel(ctx)
	defer leave()
	ended := make(chan error, 1)
	go func() { ended <- start(started) }()
	known := testwait.Poll(10*time.Second, func() bool {
		_, err := u.x.Follow(ctx, u.h, sandbox.Replay{ID: id, Now: true})
		return err == nil
	})
	leave()
	if err := <-ended; !known || err == nil {
		return fmt.Errorf("the command is known: %t; its caller left it with %w", known, err)
	}
	var out bytes.Buffer
	res, err := u.x.Follow(ctx, u.h, sandbox.Replay{ID: id, Stdout: &out})
	if err == nil && (out.String() != want || res.ExitCode != code) {
		err = fmt.Errorf("it wrote %q and ended with %d", out.String(), res.ExitCode)
	}
	return err
}

func (u user) files(ctx context.Context) error {
	const at = "/workspace/dir/file"
	err := u.x.WriteFile(ctx, u.h, sandbox.FileWrite{Path: at, Mode: 0o644}, strings.NewReader("content"))
	if err != nil {
		return err
	}
	info, err := u.x.StatFile(ctx, u.h, at)
	if err != nil || info.Size != 7 {
		return fmt.Errorf("the file is %+v, %w", info, err)
	}
	list, err := u.x.ListFiles(ctx, u.h, sandbox.FileQuery{Path: "/workspace/dir", Limit: 10})
	if err != nil || len(list) != 1 {
		return fmt.Errorf("the directory has %+v, %w", list, err)
	}
	if _, err := u.x.DiskUsage(ctx, u.h); err != nil {
		return err
	}
	return u.x.RemoveFile(ctx, u.h, sandbox.FileRemoval{Path: at})
}

func (u user) archives(ctx context.Context) error {
	const content = "of an archive"
	var in bytes.Buffer
	tw := tar.NewWriter(&in)
	err := tw.WriteHeader(&tar.Header{Name: "packed", Mode: 0o600, Size: int64(len(content))})
	_, written := io.WriteString(tw, content)
	if err := errors.Join(err, written, tw.Close(), u.x.CopyTo(ctx, u.h, "/data", &in)); err != nil {
		return err
	}
	out, err := u.x.CopyFrom(ctx, u.h, "/data/packed")
	if err != nil {
		return err
	}
	tr := tar.NewReader(out)
	_, first := tr.Next()
	got, err := io.ReadAll(tr)
	if err := errors.Join(first, err, out.Close()); err != nil || string(got) != content {
		return fmt.Errorf("%q came back, %w", got, err)
	}
	return nil
}

func (u user) secrets(ctx context.Context) error {
	if err := u.x.PutSecrets(ctx, u.h, map[string]sandbox.Secret{"token": "secret"}); err != nil {
		return err
	}
	return u.exec(ctx, sandbox.ExecRequest{Command: []string{"cat", sandbox.SecretsDir + "/token"}}, "secret")
}

func TestCommandsAndFilesAskNothingOfTheEngine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	h := w.spawn(t)
	x, p := throughProxy(t)
	u, c := user{x, h}, &counter{}
	must(t, u.command(t.Context())) // it finds the relay
	p.Set(c.count)
	for name, use := range u.operations() {
		for range 5 {
			if made := c.during(t, func() error { return use(t.Context()) }); len(made) != 0 {
				t.Errorf("%s: requests to the engine: %q", name, made)
			}
		}
	}
}
