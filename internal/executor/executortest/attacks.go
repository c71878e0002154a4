package executortest

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// hostile is a program that attacks its own sandbox.
//
//go:embed testdata/hostile/*.go
var hostile embed.FS

// attacks is a world with that program.
type attacks struct {
	*world
	program []byte
	// attempts is the minimum number of attempts of each attack.
	attempts int
	// kills is the number of sandboxes that are ended during each attack.
	kills int
}

// testAttacks: sandbox code cannot affect the sandbox's own control, other sandboxes, or the end of either. Attacks run
// one at a time, because most of them are timed.
func testAttacks(t *testing.T, cfg Config) {
	if cfg.Timed != nil {
		cfg.New = cfg.Timed
	}
	w := newWorld(t, cfg)
	w.needExec(t)
	if !w.x.Capabilities().Channel {
		t.Skip("the backend has no channel to process 1")
	}
	a := &attacks{world: w, program: compileHostile(t), attempts: 200, kills: 5}
	if os.Getenv("SANDBOX_TEST_LONG") != "" && !w.FewAttempts {
		a.attempts, a.kills = 5000, 200
	}
	for _, row := range []struct {
		name string
		test func(*testing.T, *attacks)
	}{
		{"processes that are stopped as they start hold up nothing", stopStarts},
		{"a sandbox whose processes are stopped is killed in time", stopKill},
		{"no process of another user can be reached", reachForeign},
		{"no command is traced before it runs", traceStart},
		{"a result is how the command ended", peekAtCommands},
		{"no result of a verifier is forged", forgeVerdicts},
		{"a command whose starter is killed has its timeout", killStarters},
		{"spinning processes do not put the deadline off", spinAtDeadline},
		{"what a sandbox uses up is its own", exhaustAll},
		{"what another user of a sandbox uses up is the sandbox's own", exhaustAsAnother},
		{"a bomb does not put its end off", endBombs},
		{"a bomb does not put the end of its sandbox off", killBombs},
	} {
		t.Run(row.name, func(t *testing.T) {
			cfg.skip(t, "Attacks/"+row.name)
			row.test(t, a)
		})
	}
}

func compileHostile(t *testing.T) []byte {
	t.Helper()
	const dir = "testdata/hostile"
	files, err := hostile.ReadDir(dir)
	must(t, err)
	sources := make(map[string]string)
	for _, f := range files {
		source, err := hostile.ReadFile(path.Join(dir, f.Name()))
		must(t, err)
		sources[f.Name()] = string(source)
	}
	return compile(t, sources)
}

// compile compiles a Go program to a static Linux binary. sources are the files of its main package.
func compile(t testing.TB, sources map[string]string, env ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	args := []string{"build", "-trimpath", "-ldflags", "-s -w", "-o", "program"}
	for name, source := range sources {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, name)
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOFLAGS=", "GOWORK=off"), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("compile a test program: %v\n%s", err, out)
	}
	program, err := os.ReadFile(filepath.Join(dir, "program"))
	if err != nil {
		t.Fatal(err)
	}
	return program
}

const (
	hostilePath = "/workspace/hostile"
	enoughFile  = "/workspace/enough" // ends an attack
	// answerIn limits one operation on a sandbox under attack, in addition to the command's own timeout.
	answerIn = 10 * time.Second
	// recoverIn is the time within which a sandbox must work again after an attack.
	recoverIn = 5 * time.Second
	// killIn is how much longer the end of a sandbox under attack may take than that of a quiet one.
	killIn = time.Second
	// attackFor is the timeout of an attack. An attack that ends before the attacked commands proves nothing about the
	// rest.
	attackFor = 4 * time.Hour
)

// attacked creates a sandbox with the program.
func (a *attacks) attacked(t *testing.T, change ...func(*driver.SandboxSpec)) driver.Handle {
	t.Helper()
	room := func(s *driver.SandboxSpec) {
		s.Resources = sandbox.Resources{MemoryMB: 256, CPUMillis: 1000, PIDs: 256}
		s.Deadline = time.Now().Add(attackFor)
	}
	h := a.spawn(t, append([]func(*driver.SandboxSpec){room}, change...)...)
	must(t, a.x.CopyTo(t.Context(), h, "/workspace", pack(t, executable("hostile", a.program))))
	return h
}

// start starts an attack and returns its id once it is ready.
func (a *attacks) start(t *testing.T, h driver.Handle, args ...string) string {
	t.Helper()
	r := named(t, append([]string{hostilePath}, args...)...)
	r.Timeout = sandbox.Duration(attackFor)
	id := a.detached(t, h, r)
	a.await(t, h, id, "ready\n")
	return id
}

// await waits until an attack has printed a text.
func (a *attacks) await(t *testing.T, h driver.Handle, id, what string) {
	t.Helper()
	eventually(t, "the attack says "+what, func() bool {
		said, err := a.said(t, h, id)
		return err == nil && strings.Contains(said, what)
	})
}

// diskExceeded begins what a guest adds to the errors of a program that it killed for the disk limit.
const diskExceeded = "guest: disk_exceeded: "

// said returns an attack's output so far.
func (a *attacks) said(t *testing.T, h driver.Handle, id string) (string, error) {
	t.Helper()
	var out, problems bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), answerIn)
	defer cancel()
	_, err := a.x.Follow(ctx, h, sandbox.Replay{ID: id, Now: true, Stdout: &out, Stderr: &problems})
	if problems.Len() > 0 && !strings.HasPrefix(problems.String(), diskExceeded) {
		t.Errorf("the attack has failed: %s", problems.Bytes())
	}
	return out.String(), err
}

// enough ends an attack that watches for its file, and returns its counts.
func (a *attacks) enough(t *testing.T, h driver.Handle, id string) (said string, counts map[string]count) {
	t.Helper()
	must(t, a.write(t, h, enoughFile, "", 0))
	a.ended(t, h, id)
	said, err := a.said(t, h, id)
	must(t, err)
	counts = counted(said)
	if len(counts) == 0 {
		t.Fatalf("the attack counted nothing: %s", said)
	}
	return said, counts
}

// ended waits until a command has ended.
func (a *attacks) ended(t *testing.T, h driver.Handle, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	res, err := a.x.Follow(ctx, h, sandbox.Replay{ID: id})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("the attack ended with %d and %v: %s", res.ExitCode, err, res.Stderr)
	}
}

// count is an attack's report about one kind of attempt.
type count struct {
	attempts, successes int
	first               string
}

func counted(said string) map[string]count {
	counts := make(map[string]count)
	for line := range strings.Lines(said) {
		var name string
		var c count
		if _, err := fmt.Sscanf(line, "attack %s attempts=%d successes=%d first=%q",
			&name, &c.attempts, &c.successes, &c.first); err == nil {
			counts[name] = c
		}
	}
	return counts
}

// run runs a command under attack, for at most a second.
func (a *attacks) run(t *testing.T, h driver.Handle, command ...string) (shell, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answerIn)
	defer cancel()
	r, err := sandbox.ExecRequest{Command: command, Timeout: sandbox.Duration(time.Second)}.Normalize()
	must(t, err)
	res, err := a.x.Exec(ctx, h, r)
	return shell{res}, err
}

// recovers checks that a sandbox works again soon.
func (a *attacks) recovers(t *testing.T, h driver.Handle) {
	t.Helper()
	began := time.Now()
	for {
		res, err := a.run(t, h, "echo", "still here")
		if err == nil && res.stdout() == "still here\n" {
			break
		}
		if time.Since(began) > recoverIn {
			t.Errorf("%s after the attack the sandbox says %q and %v",
				time.Since(began).Round(time.Millisecond), res.stdout(), err)
			return
		}
	}
	if took := time.Since(began); took > recoverIn {
		t.Errorf("the sandbox works again after %s", took)
	}
}

// killsInTime ends quiet and attacked sandboxes alternately, and compares the times. For each end, the time apart from
// the backend's own removal counts: an attack that delays one end of many has succeeded.
func (a *attacks) killsInTime(t *testing.T, attack func(t *testing.T, h driver.Handle)) {
	t.Helper()
	var quiet, attacked, ours []time.Duration
	for range a.kills {
		other, h := a.attacked(t), a.attacked(t)
		for _, h := range []driver.Handle{other, h} {
			a.detached(t, h, named(t, "sleep", "1h"))
		}
		attack(t, h)
		took, _ := a.kill(t, other)
		quiet = append(quiet, took)
		took, removing := a.kill(t, h)
		attacked, ours = append(attacked, took), append(ours, took-removing)
	}
	slices.Sort(quiet)
	slices.Sort(attacked)
	slices.Sort(ours)
	t.Logf("the end of a quiet sandbox took %v, of an attacked one %v, without the backend's removal %v",
		quiet, attacked, ours)
	median, slowest := a.kills/2, a.kills-1
	if q, took := quiet[median], attacked[median]; took > q+killIn {
		t.Errorf("the end of an attacked sandbox took %s, of a quiet one %s", took, q)
	}
	if took := attacked[slowest]; took > answerIn {
		t.Errorf("the slowest end of an attacked sandbox took %s", took)
	}
	if took := ours[slowest]; a.Removing != nil && took > killIn {
		t.Errorf("the slowest end of an attacked sandbox took %s beside the backend's removal", took)
	}
}

// kill ends a sandbox. It returns the duration, and the part that the backend's removal took.
func (a *attacks) kill(t *testing.T, h driver.Handle) (took, removing time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	began := time.Now()
	if a.Removing != nil {
		removing = -a.Removing()
	}
	if err := a.x.Kill(ctx, h); err != nil {
		t.Fatalf("after %s: kill: %v", time.Since(began).Round(time.Millisecond), err)
	}
	took = time.Since(began)
	if a.Removing != nil {
		removing += a.Removing()
	}
	return took, removing
}
