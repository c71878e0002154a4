package docker_test

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestAMountIsReadOnlyUnlessItIsWritable(t *testing.T) {
	t.Parallel()
	w, dir := newWorld(t, dockertest.Busybox(t)), t.TempDir()
	must(t, os.Chmod(dir, 0o777)) // the sandbox's user is not the test's user
	must(t, os.WriteFile(filepath.Join(dir, "rules.txt"), []byte("no cheating\n"), 0o644))
	spec := w.spec()
	spec.Resources.DiskMB = 1024
	spec.Mounts = []sandbox.Mount{
		{Source: dir, Target: "/mnt/rules"}, {Source: dir, Target: "/workspace/shared", Writable: true},
	}
	must(t, w.x.Spawn(t.Context(), spec))
	got := w.exec(t, spec.Handle, "sh", "-c",
		"cat /mnt/rules/rules.txt; touch /mnt/rules/x 2>/dev/null || echo refused; echo from inside > /workspace/shared/note")
	if want := "no cheating\nrefused\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if note, err := os.ReadFile(filepath.Join(dir, "note")); err != nil || string(note) != "from inside\n" {
		t.Errorf("the host reads %q: %v", note, err)
	}
	if found, _ := w.findings(t, spec.SandboxID); len(found) != 0 {
		t.Errorf("the audit finds what is allowed: %v", found)
	}
}

func TestMountsNeedAnEngineOnThisMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	far := httptest.NewServer(dockertest.NewProxy(t))
	defer far.Close()
	remote, err := docker.New(docker.Config{Host: "tcp://" + far.Listener.Addr().String()})
	must(t, err)
	defer func() { must(t, remote.Close()) }()
	spec := w.environment()
	spec.Mounts = []sandbox.Mount{{Source: "/srv", Target: "/mnt"}}
	if err := remote.Provision(t.Context(), w.ref, spec); sandbox.CodeOf(err) != sandbox.Invalid ||
		!strings.Contains(err.Error(), "mounts: ") {
		t.Errorf("the error is %v", err)
	}
}
