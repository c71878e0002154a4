package leasing_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	hostaccess "github.com/sandbox-lease/terraform-provider-sandbox/internal/host"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// allow gives the world a host with a directory and variables.
func (w *world) allow(dir string, variables map[string]string) {
	w.Helper()
	c := hostaccess.Config{LookupEnv: func(name string) (string, bool) { v, ok := variables[name]; return v, ok }}
	if dir != "" {
		c.Directories = []string{dir}
	}
	for name := range variables {
		c.Variables = append(c.Variables, name)
	}
	machine, err := hostaccess.New(c)
	if err != nil {
		w.Fatal(err)
	}
	if err := w.engine.Close(); err != nil {
		w.Fatal(err)
	}
	if w.engine, err = leasing.New(leasing.Config{
		Store:     w.store,
		Executors: []driver.Executor{w.backend},
		Host:      machine,
	}); err != nil {
		w.Fatal(err)
	}
}

func TestPassedVariablesReachSandboxesAndNotTheLedger(t *testing.T) {
	inWorld(t, func(w *world) {
		const passed = "a-value-that-is-only-passed"
		w.allow("", map[string]string{"GAME_SERVER": passed, "LANG": "C"})
		w.environment(func(p *sandbox.PutEnvironment) {
			p.EnvPassthrough, p.Env = []string{"GAME_SERVER", "LANG"}, map[string]string{"LANG": "de"}
		})
		l := w.acquire(ann)
		if env := w.backend.Spec(l.SandboxID).Env; env["GAME_SERVER"] != passed || env["LANG"] != "de" {
			w.Errorf("the sandbox has %v; variables that are set must win", env)
		}
		w.environment(func(p *sandbox.PutEnvironment) { p.EnvPassthrough = []string{"*"} })
		l = w.acquire(bob)
		if env := w.backend.Spec(l.SandboxID).Env; env["GAME_SERVER"] != passed || env["LANG"] != "C" {
			w.Errorf("of all allowed variables, the sandbox has %v", env)
		}
		files, err := filepath.Glob(w.path + "*")
		if err != nil {
			w.Fatal(err)
		}
		for _, f := range files {
			if content, err := os.ReadFile(f); err != nil || bytes.Contains(content, []byte(passed)) {
				w.Errorf("%s holds the value, or: %v", f, err)
			}
		}
	})
}

func TestAVariableThatWentAwayFailsTheLeaseByName(t *testing.T) {
	inWorld(t, func(w *world) {
		variables := map[string]string{"GAME_SERVER": "here"}
		w.allow("", variables)
		w.environment(func(p *sandbox.PutEnvironment) { p.EnvPassthrough = []string{"GAME_SERVER"} })
		delete(variables, "GAME_SERVER")
		_, err := w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test"})
		if err == nil || !strings.Contains(err.Error(), "GAME_SERVER is not set") {
			w.Errorf("the error is %v", err)
		}
	})
}

func TestACommandGetsNoVariableThatItsEnvironmentBlocks(t *testing.T) {
	inWorld(t, func(w *world) {
		w.environment(func(p *sandbox.PutEnvironment) { p.EnvBlocked = []string{"HOUSE_RULES"} })
		l := w.acquire(ann)
		_, err := w.engine.Exec(w.Context(), sandbox.LeaseRef{ID: l.ID},
			sandbox.ExecRequest{Command: []string{"echo"}, Env: map[string]string{"HOUSE_RULES": "x"}})
		if sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "env.HOUSE_RULES") {
			w.Errorf("the error is %v", err)
		}
		w.exec(l.ID, "echo")
	})
}

func TestCopiesAreInASandboxBeforeItIsUsed(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "rules.txt"), []byte("no cheating"), 0o600); err != nil {
		t.Fatal(err)
	}
	inWorld(t, func(w *world) {
		w.allow(dir, nil)
		w.environment(func(p *sandbox.PutEnvironment) {
			p.Copies = []sandbox.Copy{{Source: filepath.Join(dir, "rules.txt"), Target: "/workspace/house/rules.txt"}}
		})
		l := w.acquire(ann)
		if content, ok := w.backend.FileOf(l.SandboxID, "/workspace/house/rules.txt"); !ok || content != "no cheating" {
			w.Errorf("the sandbox has %q, %t", content, ok)
		}
	})
}

func TestWhatTheHostDoesNotAllowMakesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		_, err := w.engine.PutEnvironment(w.Context(), sandbox.PutEnvironment{
			ID:    game,
			Owner: "test",
			EnvironmentSpec: sandbox.EnvironmentSpec{
				Image: "player", Network: sandbox.NetworkNone,
				HostAccess: sandbox.HostAccess{Mounts: []sandbox.Mount{{Source: "/srv", Target: "/mnt"}}},
			},
		})
		if sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "mounts[0].source") ||
			w.backend.Environments() != 0 {
			w.Errorf("%d environments were made: %v", w.backend.Environments(), err)
		}
	})
}
