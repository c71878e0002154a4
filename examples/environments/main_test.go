// Package environments_test runs the examples of this directory from end to end. The real Terraform applies them on the
// real Docker Engine, beside a reconciler. The model, the relay and the git host are fakes on this machine.
package environments_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "environments")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	program = sync.OnceValues(func() (string, error) { return providertest.Build(dir) })
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// program is the provider and the reconciler's command line, built once.
var program func() (string, error)

// base is an image with Python and Node.js, the base of agents' images. It is built once, because not every machine can
// pull one.
var base = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("../../scripts/agent-base").Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("scripts/agent-base: %w\n%s", err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
})

// long skips tests that take longer than make test allows.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("SANDBOX_TEST_ALL") == "" {
		t.Skip("examples with Python are played with SANDBOX_TEST_ALL=1")
	}
}

// The tests of the agents' program and of its hosts run in the image of the sandboxes, which has what tasks need.
func TestPythonUnits(t *testing.T) {
	t.Parallel()
	long(t)
	image := "sandbox-test/environments-units:" + sandbox.RandomIDs(12)
	from, err := base()
	must(t, err)
	docker(t, "build", "--quiet", "--tag", image, "--build-arg", "BASE="+from, "image")
	t.Cleanup(func() { docker(t, "image", "rm", image) })
	t.Run("image", func(t *testing.T) {
		t.Parallel()
		said := docker(t, "run", "--rm", "--network", "none", "--workdir", "/tmp", image, "sh", "-c",
			"echo 'const n: number = 6; console.log(n * 7)' >a.ts && tsx a.ts && tsc a.ts && node a.js && "+
				"python -c 'import aiohttp, pydantic' && git config user.name && git config user.email && ls /workspace")
		if said != "42\n42\nAgent\nagent@atproto.network\ntake_turn.py\n" {
			t.Errorf("TypeScript, Python, Git and the turn processor are\n%s", said)
		}
	})
	for what, dirs := range map[string]map[string]string{
		"agent": {"image/tests": "/tests"},
		"host":  {"host": "/sources", "host/tests": "/tests"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			id := strings.TrimSpace(docker(t, "create", "--network", "none", "--env", "PYTHONPATH=/sources:/harness", "--env",
				"PYTHONDONTWRITEBYTECODE=1", "--workdir", "/", image,
				"python3", "-m", "unittest", "discover", "--start-directory", "/tests"))
			t.Cleanup(func() { docker(t, "rm", "--force", id) })
			for from, to := range dirs {
				docker(t, "cp", filepath.Clean(from)+"/.", id+":"+to)
			}
			if said := docker(t, "start", "--attach", id); !strings.Contains(said, "\nOK") ||
				strings.Contains(said, "Ran 0 tests") {
				t.Errorf("the tests say\n%s", said)
			}
		})
	}
}

// docker runs a command that must succeed, and returns its output and its error output.
func docker(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("docker", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
