package running_test

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testaddress"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run runs a command, and returns its output.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute)
	defer cancel()
	var out, said bytes.Buffer
	c := exec.CommandContext(ctx, name, args...)
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "DOCKER_BUILDKIT=0") // not every engine's client has BuildKit
	c.Stdout, c.Stderr = &out, &said
	if err := c.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out.String(), said.String())
	}
	return strings.TrimSpace(out.String())
}

// build builds the program as make build does, and returns its directory.
func build(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	program := filepath.Join(bin, "terraform-provider-sandbox")
	run(t, "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-o", program, "../..")
	return bin
}

// engineSocket returns the socket of the test's engine, and the id of its group.
func engineSocket(t *testing.T) (path, group string) {
	t.Helper()
	path = strings.TrimPrefix(dockertest.Engine(t).DaemonHost(), "unix://")
	info, err := os.Stat(path)
	must(t, err)
	return path, strconv.FormatUint(uint64(info.Sys().(*syscall.Stat_t).Gid), 10)
}

// cleanUp removes a container at the end of the test. If the test has failed, it shows the output of a docker command
// about it.
func cleanUp(t *testing.T, id string, args ...string) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "docker", args...).CombinedOutput()
			t.Logf("the reconciler's log (%v):\n%s", err, out)
		}
		run(t, "docker", "rm", "--force", "--volumes", id)
	})
}

// directory creates a directory with the mode, which others can reach by its path.
func directory(t *testing.T, mode os.FileMode) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "running")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Chmod(dir, mode))
	return dir
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := testaddress.Free()
	must(t, err)
	return address
}

func awaitReady(t *testing.T, url string) {
	t.Helper()
	eventually(t, "the reconciler is ready", func() bool {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/readyz", nil)
		must(t, err)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return false
		}
		must(t, resp.Body.Close())
		return resp.StatusCode == http.StatusOK
	})
}

// eventually waits up to a minute until a condition holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testwait.Until(t, time.Minute, what, ok)
}
