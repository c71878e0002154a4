package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/pricing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/servicetest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/servicetest/inprocess"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/api"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/webhook"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestMain(m *testing.M) {
	for _, name := range []string{"SANDBOX_RECONCILER_URL", "SANDBOX_RECONCILER_TOKEN"} {
		if err := os.Unsetenv(name); err != nil {
			panic(err)
		}
	}
	time.Local = time.UTC
	goleak.VerifyTestMain(m)
}

// world is a reconciler that the command line calls.
type world struct {
	*testing.T
	servicetest.Env
	url, tokenFile, secretFile string
}

// newWorld starts the reconciler. change changes the configuration of its service.
func newWorld(t *testing.T, change ...func(*leasing.Config)) *world {
	t.Helper()
	env, store := inprocess.NewStored(t, change...)
	w := &world{T: t, Env: env}
	write := func(name, line string) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	w.tokenFile = write("tokens", "default "+access.NewToken())
	w.secretFile = write("secrets", webhook.NewSecret()+" not_after=2020-01-01T00:00:00Z\n"+webhook.NewSecret())
	tokens, err := access.LoadTokens(w.tokenFile)
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := access.LoadSecrets(w.secretFile)
	if err != nil {
		t.Fatal(err)
	}
	// Senders sign with the machine's clock, so the API uses it too. The service has its own clock.
	handler, err := api.New(api.Config{
		Service: w.Service,
		Access:  access.New(access.Config{Store: store}),
		Tokens:  tokens,
		Secrets: secrets,
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

// game creates the environment catan-7 with ann's lease, and advances the clock.
func (w *world) game(d time.Duration) {
	w.Helper()
	never := sandbox.Duration(0)
	_, err := w.Service.PutEnvironment(w.Context(), sandbox.PutEnvironment{
		ID:    "catan-7",
		Owner: "suite",
		EnvironmentSpec: sandbox.EnvironmentSpec{
			Type: sandbox.TypeCatan, Image: "player", Network: sandbox.NetworkNone, SleepAfter: &never},
	})
	if err == nil {
		_, err = w.Service.Acquire(w.Context(),
			sandbox.Acquire{AgentDID: "did:plc:ann", EnvironmentID: "catan-7", Owner: "suite"})
	}
	if err != nil {
		w.Fatal(err)
	}
	w.Advance(d)
}

// result is the output and the exit code of a command.
type result struct {
	code     int
	out, err string
}

func run(ctx context.Context, stdin string, args ...string) result {
	return runWith(ctx, cli.Config{Getenv: noHome}, stdin, args...)
}

// noHome is the environment of a user who never logged in.
func noHome(name string) string {
	if name == "XDG_CONFIG_HOME" {
		return "/nowhere"
	}
	return os.Getenv(name)
}

// runWith runs a command with a configuration of the test.
func runWith(ctx context.Context, c cli.Config, stdin string, args ...string) result {
	var out, err bytes.Buffer
	command := commandLine(c)
	command.SetIn(strings.NewReader(stdin))
	command.SetOut(&out)
	command.SetErr(&err)
	code := cli.Run(ctx, command, args)
	return result{code, out.String(), err.String()}
}

// run runs a command against the reconciler.
func (w *world) run(args ...string) result {
	w.Helper()
	at := []string{"--url", w.url, "--token-file", w.tokenFile}
	return runWith(w.Context(), cli.Config{Getenv: noHome, Now: w.Now}, "", append(args[:1:1], append(at, args[1:]...)...)...)
}

func (w *world) want(r result, code int, texts ...string) {
	w.Helper()
	if r.code != code {
		w.Fatalf("exit code is %d, want %d\n%s%s", r.code, code, r.out, r.err)
	}
	for _, text := range texts {
		if !strings.Contains(r.out+r.err, text) {
			w.Errorf("the output does not show %q:\n%s%s", text, r.out, r.err)
		}
	}
}

func TestSendEndsAGame(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game(time.Second)
	now := w.Now().Format(time.RFC3339)
	signed := []string{
		"send", "--url", w.url, "--webhook-secret-file", w.secretFile, "--type", "game.finished", "--environment", "catan-7",
		"--timestamp", now, "--id", "msg-1", "--reason", "ann wins",
	}
	w.want(run(t.Context(), "", signed...), exit.Done, "msg-1", "applied", "1")
	w.want(run(t.Context(), "", signed...), exit.Done, "yes") // a duplicate
	w.want(run(t.Context(), "", append(signed, "--reason", "bob wins")...), exit.Failed, "Error:", "msg-1")
	w.Advance(time.Second)
	w.want(w.run("lease", "list"), exit.Done, "did:plc:ann::catan-7", "destroyed", "deleted",
		"condition: game.finished: ann wins")
	w.want(w.run("env", "list"), exit.Done, "catan-7", "ended by game.finished")
	w.want(w.run("env", "reopen", "catan-7"), exit.Done, "open")

	// With a token, and JSON output.
	r := w.run("send", "--type", "game.finished", "--environment", "nowhere", "--timestamp", now, "--output", "json")
	var receipt sandbox.Receipt
	if err := json.Unmarshal([]byte(r.out), &receipt); err != nil || receipt.Status != sandbox.DeliveryUnmatched ||
		!strings.HasPrefix(receipt.ID, "msg_") {
		t.Errorf("the receipt is %s: %v", r.out, err)
	}
}

func TestAcquireWaitsUnlessItIsToldNotTo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game(time.Hour)
	w.HoldSpawns(true)
	w.want(w.run("lease", "create", "did:plc:zoe", "catan-7", "--no-wait"), exit.Done,
		"did:plc:zoe::catan-7", "pending")
	w.HoldSpawns(false)
	w.want(w.run("lease", "create", "did:plc:zoe", "catan-7"), exit.Done, "did:plc:zoe::catan-7", "active", "ready")
	w.want(w.run("lease", "create", "did:plc:zoe"), exit.Usage, "2 arguments")
	w.FailKills(true)
	w.want(w.run("lease", "release", "did:plc:zoe::catan-7", "--no-wait"), exit.Done, "did:plc:zoe::catan-7", "expired")
	w.FailKills(false)
	w.want(w.run("lease", "release", "did:plc:zoe::catan-7"), exit.Done, "did:plc:zoe::catan-7", "destroyed")
}

func TestAcquireBatchTakesAgentsFromItsArgumentsAndAFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game(time.Hour)
	file := filepath.Join(t.TempDir(), "agents")
	if err := os.WriteFile(file, []byte("# the table\ndid:plc:zoe\n\n did:plc:yan # north\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.want(w.run("lease", "create-batch", "catan-7", "did:plc:xia", "--agents-file", file, "--all-or-none"),
		exit.Done, "did:plc:xia::catan-7", "did:plc:zoe::catan-7", "did:plc:yan::catan-7", "active")
	w.want(w.run("lease", "create-batch", "catan-7", "did:plc:vic", "did:plc:zoe", "--owner", "gm"), exit.Failed,
		"did:plc:vic::catan-7", "no lease for 1 of 2 agents: did:plc:zoe: lease did:plc:zoe::catan-7 is held by")
	w.want(w.run("lease", "create-batch", "catan-7", "did:plc:uma", "did:plc:zoe", "--owner", "gm", "--all-or-none"),
		exit.Failed, "items[1]")
	w.want(w.run("lease", "create-batch", "catan-7"), exit.Usage, "items")
	w.want(w.run("lease", "create-batch"), exit.Usage, "environment")
	w.want(w.run("lease", "create-batch", "catan-7", "--agents-file", file+"x"), exit.Usage, "no such file")
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game(time.Second)
	w.want(w.run("send", "--type", "agent.death", "--environment", "catan-7"), exit.Usage, "; --agent: ")
	w.want(w.run("lease", "list", "--no-such-flag"), exit.Usage, "--no-such-flag")
	w.want(w.run("lease", "list", "one"), exit.Usage, "no arguments, not 1")
	w.want(w.run("lease", "list", "--output", "xml"), exit.Usage, "table, wide, json, yaml or name")
	w.want(w.run("cost", "--group-by", "colour"), exit.Usage, "; --group-by: ")
	w.want(w.run("cost", "--from", "yesterday"), exit.Usage, "--from")
	w.want(run(t.Context(), "", "no-such-command"), exit.Usage, "no-such-command")
	w.want(run(t.Context(), "", "help", "foo"), exit.Usage, `no command "foo"`)
	w.want(run(t.Context(), "", "help", "leas"), exit.Usage, "did you mean lease or logs?")
	w.want(run(t.Context(), "", "help", "lease", "grab"), exit.Usage, `sandbox lease has no command "grab"`)
	w.want(run(t.Context(), "", "help", "lease", "list"), exit.Done, "List leases")
	w.want(run(t.Context(), "", "help"), exit.Done, "Daily:")
	w.want(run(t.Context(), "", "completion", "ksh"), exit.Usage, `sandbox completion has no command "ksh"`)
	w.want(run(t.Context(), "", "completion"), exit.Done, "bash")
	w.want(run(t.Context(), "", "completion", "bash"), exit.Done, "__start_sandbox")
	w.want(run(t.Context(), "", "serve", "extra"), exit.Usage, "sandbox serve takes no arguments, not 1")
	w.want(run(t.Context(), "", "doctor", "extra"), exit.Usage, "takes no arguments")
	w.want(run(t.Context(), "", "backup", "/no/such/directory/x.tar", "--ledger", inprocess.SQLite(t)), exit.Usage,
		"/no/such/directory/x.tar", "no such file or directory")
	w.want(run(t.Context(), ""), exit.Done, "send", "exec", "events")
	w.want(run(t.Context(), "", "version"), exit.Done, "0.1.0")
	w.want(run(t.Context(), "", "lease", "list", "--token-file", w.tokenFile), exit.Usage, "--url", "SANDBOX_RECONCILER_URL")
	w.want(run(t.Context(), "", "lease", "list", "--url", w.url), exit.Usage, "--token-file", "SANDBOX_RECONCILER_TOKEN")
	w.want(w.run("lease", "release", "did:plc:nobody::catan-7"), exit.Failed, "Error:")
	w.FailKills(true)
	w.want(w.run("lease", "release", "did:plc:ann::catan-7"), exit.Retry, "the engine is away")

	other := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(other, []byte(access.NewToken()), 0o600); err != nil {
		t.Fatal(err)
	}
	w.want(run(t.Context(), "", "lease", "list", "--url", w.url, "--token-file", other), exit.Failed,
		"rejects the token: unknown token")
	if err := os.Chmod(other, 0o644); err != nil {
		t.Fatal(err)
	}
	w.want(run(t.Context(), "", "lease", "list", "--url", w.url, "--token-file", other), exit.Usage, "chmod 600")
}

func TestExecIsTheCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game(time.Second)
	at := []string{"exec", "--url", w.url, "--token-file", w.tokenFile, "did:plc:ann::catan-7"}
	exec := func(stdin string, args ...string) result {
		return run(t.Context(), stdin, append(at[:len(at):len(at)], args...)...)
	}
	if r := exec("from stdin", "--", "cat"); r != (result{0, "from stdin", ""}) {
		t.Errorf("cat gave %+v", r)
	}
	for _, without := range []string{"--no-stdin", "--stdin=false"} {
		if r := exec("from stdin", without, "--", "cat"); r != (result{0, "", ""}) {
			t.Errorf("cat with %s gave %+v", without, r)
		}
	}
	if r := exec("", "--", "exit", "42"); r != (result{42, "", ""}) {
		t.Errorf("exit 42 gave %+v", r)
	}
	if r := exec("", "--timeout", "10ms", "--", "sleep", "1h"); r.code != sandbox.ExitTimeout {
		t.Errorf("a command out of time gave %+v", r)
	}
	if r := exec("", "--as", "verifier", "--", "whoami"); r != (result{0, "verifier\n", ""}) {
		t.Errorf("as verifier it gave %+v", r)
	}
	w.want(exec("", "--as", "root", "--", "echo"), exit.NotRun, "must be verifier")
	w.want(exec("", "--generation", "2", "--", "echo"), exit.NotRun, "generation")
	w.want(exec("", "--env", "A", "--", "echo"), exit.Usage, "--env A: must be NAME=value")
	w.want(exec("", "-t", "--", "echo"), exit.Usage, "no terminals")
	w.want(exec(""), exit.Usage, "a command")
	w.want(exec("", "--timeout", "5", "--", "echo"), exit.Usage, "--timeout")
	for _, form := range []string{"json", "yaml", "wide", "name"} {
		w.want(exec("", "-o", form, "--", "echo"), exit.Usage, "-o "+form, "prints the command's own output", "--detach")
	}
	w.want(exec("", "-q", "--", "echo"), exit.Usage, "--quiet", "--detach")
	w.want(exec("", "-o", "json", "--detach", "--id", "apart", "--", "echo"), exit.Done, `"id": "apart"`)
}

func TestReportsAreReadable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game(90 * time.Minute)
	w.want(w.run("cost"), exit.Done,
		"LEASE                 AWAKE h   CPU h  GROSS  ON CLOUDFLARE\n"+
			"did:plc:ann::catan-7   1.5000  0.0000  $0.01          $0.01\n"+
			"total                  1.5000  0.0000  $0.01          $0.01\n")
	w.want(w.run("cost", "--accounts", "-o", "wide"), exit.Done, "ALLOTMENT", "2026-08", "cloudflare-containers of 2026-08-21",
		"GiB-hours", "25.000", "plan fee", "$5.00")
	w.want(w.run("cost", "--output", "json"), exit.Done, `"awake_seconds": 5400`, `"gross_usd": "0.01062`,
		`"shadow_gross_usd": "0.01062`, `"accounts": [`, `"unit": "vCPU-minutes"`)
	w.want(w.run("cost", "--group-by", "day"), exit.Done, "DAY (UTC)", "2026-08-15")
	w.want(w.run("events", "--lease", "did:plc:ann::catan-7"), exit.Done, "sandbox.accepted", "sandbox.ready",
		"ann@catan-7#1")
	if r := w.run("events", "--after", "2"); strings.Contains(r.out, "sandbox.accepted") ||
		!strings.Contains(r.out, "sandbox.ready") {
		t.Errorf("after the second event come\n%s", r.out)
	}
	w.want(w.run("events", "--after", "99"), exit.Usage, "event ids up to 4")
	w.want(w.run("lease", "list"), exit.Done, "LEASE",
		"active", "1h30m ago", "in 22h30m")
	w.want(w.run("lease", "list", "-o", "wide"), exit.Done,
		w.Now().Add(-90*time.Minute).Local().Format(time.RFC3339), "suite")

	l, err := w.Service.GetLease(t.Context(), "did:plc:ann::catan-7")
	if err != nil {
		t.Fatal(err)
	}
	w.Remove(l.SandboxID)
	w.Advance(time.Second)
	w.want(w.run("drift", "-o", "wide"), exit.Done, "vanished", l.SandboxID)
	var page struct{ Findings []sandbox.DriftFinding }
	if r := w.run("drift", "-o", "json"); json.Unmarshal([]byte(r.out), &page) != nil || len(page.Findings) != 1 {
		t.Errorf("as JSON the findings are %s", r.out)
	}
	for line := range strings.Lines(w.run("events", "-o", "json").out) {
		var e sandbox.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.ID == 0 {
			t.Errorf("as JSON an event is %s: %v", line, err)
		}
	}
}

func TestSweepShowsWhatItFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game(time.Second)
	info, err := w.Service.Ledger(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.Plant(driver.SandboxSpec{
		Handle: driver.Handle{LedgerID: info.ID, EnvironmentID: "catan-7", SandboxID: "stray", Instance: w.Instance},
	})
	w.Pass(3 * time.Minute)
	w.want(w.run("sweep", "--dry-run"), exit.Done, "orphan", "stray", "would keep", "next resync")
	w.want(w.run("sweep"), exit.Done, "orphan", "stray", "keep", "next resync")
	w.Pass(3 * time.Minute)
	w.want(w.run("sweep"), exit.Done, "orphan", "stray", "destroy")
	var report sandbox.SweepReport
	if r := w.run("sweep", "-o", "json"); json.Unmarshal([]byte(r.out), &report) != nil || report.LedgerID != info.ID ||
		len(report.Instances) != 1 {
		t.Errorf("as JSON the report is %s", r.out)
	}
	w.BackendAway(true)
	w.want(w.run("sweep"), exit.Retry, "the engine is away")
}

func TestAuditEndsWithAnErrorOnAFinding(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game(time.Second)
	l, err := w.Service.GetLease(t.Context(), "did:plc:ann::catan-7")
	if err != nil {
		t.Fatal(err)
	}
	w.want(w.run("audit"), exit.Done, "PASS", "1 rule passes", l.SandboxID)
	w.want(w.run("audit", "--all", "--environment", "catan-7"), exit.Done, "PASS", "F.1", l.ID)
	w.Weaken(l.SandboxID, "it is privileged")
	w.want(w.run("audit"), exit.Failed, "FINDING", "F.1", l.SandboxID, "it is privileged", "1 finding: ")
	r := w.run("audit", "-o", "json")
	var report sandbox.AuditReport
	if err := json.Unmarshal([]byte(r.out), &report); err != nil || report.Findings() != 1 || r.code != exit.Failed {
		t.Errorf("as JSON the report is %s, with exit code %d", r.out, r.code)
	}
	w.BackendAway(true)
	w.want(w.run("audit"), exit.Retry, "the engine is away")
}

func TestAdoptShowsWhatBecameOfEach(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game(time.Second)
	plant := func(environment string) {
		w.Plant(driver.SandboxSpec{
			Handle: driver.Handle{
				LedgerID:      "lostlostlostlost",
				EnvironmentID: environment,
				SandboxID:     "of-" + environment,
				Instance:      w.Instance,
			},
			LeaseID:    sandbox.LeaseID("did:plc:bob", environment),
			AgentDID:   "did:plc:bob",
			Generation: 2,
			Image:      "player",
			Deadline:   w.Now().Add(time.Hour),
		})
	}
	plant("catan-7")
	plant("rpg-1")
	w.want(w.run("adopt", "--ledger", "lostlostlostlost", "--dry-run"), exit.Done, "did:plc:bob::catan-7", "would be",
		"did:plc:bob::rpg-1", "create it first")
	w.want(w.run("adopt", "--ledger", "lostlostlostlost", "--environment", "catan-7"), exit.Done,
		"did:plc:bob::catan-7", "yes")
	w.want(w.run("lease", "list"), exit.Done, "did:plc:bob::catan-7")
	w.want(w.run("adopt", "--ledger", "x"), exit.Usage, "--ledger: must be a ledger id")
	var report sandbox.AdoptReport
	if r := w.run("adopt", "--ledger", "lostlostlostlost", "-o", "json"); json.Unmarshal([]byte(r.out), &report) != nil ||
		len(report.Sandboxes) != 1 {
		t.Errorf("as JSON the report is %s", r.out)
	}
}

func TestTextOfOthersCannotMoveTheCursor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game(time.Second)
	w.want(w.run("send", "--type", "game.finished", "--environment", "catan-7",
		"--timestamp", w.Now().Format(time.RFC3339), "--reason", "x\x1b[2J\ty\nz"), exit.Done)
	for _, command := range [][]string{{"lease", "list"}, {"events"}} {
		if r := w.run(command...); strings.Contains(r.out, "\x1b") || strings.Contains(r.out, "\nz") {
			t.Errorf("%s prints %q", command, r.out)
		}
	}
}

func TestSendSaysWhyNothingEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game(time.Second)
	began := w.Now()
	w.Advance(time.Second)
	for _, c := range []struct{ args, says string }{
		{"--type game.finished --environment nowhere",
			"Nothing ended: there is no environment nowhere; check --environment\n"},
		{"--type game.paused --environment catan-7",
			"Nothing ended: no lease of catan-7 ends on game.paused; check --type\n"},
		{"--type game.finishd --environment catan-7",
			"Nothing ended: no lease of catan-7 ends on game.finishd; did you mean game.finished?\n"},
		{"--type game.finished --environment catan-7 --agent did:plc:bob",
			"Nothing ended: did:plc:bob has no lease of catan-7; check --agent\n"},
		{"--type game.finished --environment catan-7 --agent did:plc:ann --generation 9",
			"Nothing ended: the lease of did:plc:ann in catan-7 has not reached generation 9; check --generation\n"},
		{"--type game.finished --environment catan-7 --agent did:plc:ann --timestamp " + began.Add(-time.Hour).Format(time.RFC3339),
			"Nothing ended: what it would end in catan-7 began after " + began.Add(-time.Hour).Format(time.RFC3339) +
				"; check --timestamp\n"},
		{"--type game.finished --environment catan-7", ""},
		{"--type game.finished --environment catan-7", "Nothing ended: environment catan-7 had already ended\n"},
		{"--type game.finished --environment catan-7 --agent did:plc:ann",
			"Nothing ended: the lease of did:plc:ann in catan-7 had already ended\n"},
	} {
		args := append([]string{"send"}, strings.Fields(c.args)...)
		if !strings.Contains(c.args, "--timestamp") {
			args = append(args, "--timestamp", w.Now().Format(time.RFC3339))
		}
		if r := w.run(args...); r.code != exit.Done || r.err != c.says {
			t.Errorf("send %s exits with %d and says %q, want %q", c.args, r.code, r.err, c.says)
		}
	}
}

// syncBuffer is a buffer that a command writes and its test reads.
type syncBuffer struct {
	lines chan string
}

func (b syncBuffer) Write(p []byte) (int, error) {
	b.lines <- string(p)
	return len(p), nil
}

// following follows events with a filter. next checks the type of the next one, and stop ends the command.
func (w *world) following(filter ...string) (next func(kind string), stop func()) {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	w.Cleanup(cancel)
	out, code := syncBuffer{make(chan string)}, make(chan int, 1)
	command := cli.New(cli.Config{Getenv: noHome})
	command.SetOut(out)
	args := append([]string{"events", "--follow", "--url", w.url, "--token-file", w.tokenFile}, filter...)
	go func() { code <- cli.Run(ctx, command, args) }()
	return func(kind string) {
			w.Helper()
			select {
			case line := <-out.lines:
				if !strings.Contains(line, kind) {
					w.Errorf("the line is %s, want %s", line, kind)
				}
			case got := <-code:
				w.Fatalf("before %s, it exits with %d", kind, got)
			}
		}, func() {
			w.Helper()
			cancel()
			if got := <-code; got != exit.Done {
				w.Errorf("stopped, it exits with %d", got)
			}
		}
}

func TestEventsAreFollowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game(time.Second)
	next, stop := w.following("--lease", "did:plc:ann::catan-7")
	for _, kind := range []string{"sandbox.accepted", "sandbox.preparing", "sandbox.ready"} {
		next(kind)
	}
	if _, err := w.Service.Renew(t.Context(),
		sandbox.Renew{LeaseRef: sandbox.LeaseRef{ID: "did:plc:ann::catan-7"}}); err != nil {
		t.Fatal(err)
	}
	next("lease.renewed")
	stop()
}

// The latest event that a filter selects may be older than purged events that it omits.
func TestEventsAreFollowedAfterAPurge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.want(w.run("token", "create", "one", "--scope", "read"), exit.Done)
	w.game(time.Second)
	w.want(w.run("lease", "release", "ann@catan-7"), exit.Done)
	w.Advance(31 * 24 * time.Hour)
	w.Purge(30 * 24 * time.Hour)
	next, stop := w.following("--type", "token.*")
	next("token.created")
	w.want(w.run("token", "create", "two", "--scope", "read"), exit.Done)
	next("token.created")
	stop()
}

func TestEnvironmentVariablesStandInForFlags(t *testing.T) {
	w := newWorld(t)
	token, err := access.ReadToken(w.tokenFile)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SANDBOX_RECONCILER_URL", w.url)
	t.Setenv("SANDBOX_RECONCILER_TOKEN", token)
	w.want(run(t.Context(), "", "env", "list"), exit.Done, "ENVIRONMENT")
}

func TestAWaitThatEndsWithoutItsEventTimesOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game(time.Second)
	w.want(w.run("process", "start", "did:plc:ann::catan-7", "relay", "--", "sleep", "1h"), exit.Done, "relay")
	wait := []string{"process", "wait", "did:plc:ann::catan-7", "relay", "--log"}
	w.want(w.run(append(wait, "^no", "--timeout", "50ms")...), exit.TimedOut, "within 50ms")
	w.want(w.run(append(wait, "^no", "--timeout", "5")...), exit.Usage, "--timeout")
}

func TestTheStatementOfAnAccountHasOnlyWhatItOwes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *leasing.Config) {
		c.PriceBooks = map[sandbox.Backend]sandbox.PriceBook{sandbox.Docker: pricing.Free()}
	})
	w.game(90 * time.Minute)
	r := w.run("cost", "--accounts", "-o", "wide")
	if strings.Count(r.out, "total") != 1 || strings.Contains(r.out, "cloudflare") || strings.Contains(r.out, "$5.00") {
		t.Errorf("the statement is\n%s", r.out)
	}
	w.want(w.run("cost", "--accounts", "-o", "json"), exit.Done, `"shadow": {`, "cloudflare-containers")
}

func TestNothingToShowIsSaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game(time.Second)
	for command, none := range map[string]string{
		"drift": "No drift.", "sweep": "No differences.", "adopt --dry-run": "No sandboxes to adopt.",
	} {
		r := w.run(strings.Fields(command)...)
		w.want(r, exit.Done)
		if r.err != none+"\n" || strings.Contains(r.out, none) {
			t.Errorf("%s prints %q and %q, want %q on standard error", command, r.out, r.err, none)
		}
		if r := w.run(append(strings.Fields(command), "-o", "json")...); r.err != "" {
			t.Errorf("%s -o json says %q", command, r.err)
		}
	}
	w.want(w.run("logs", "ann@catan-7", "nope"), exit.Failed, "has no command and no process nope")
}
