package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gitmirror"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gittest"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/plansummary"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/daemon"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var update = flag.Bool("update", false, "write the outputs of testdata/transcripts")

// transcriptWidth is the width of the terminal of the transcripts, in columns.
const transcriptWidth = 100

// TestTranscripts runs the files of testdata/transcripts, each beside its own reconciler. A line "$ sandbox …" is a
// command. The lines below it are its output and its error output, and "[exit n]" unless it exits with 0. A line "% …"
// changes the world; see (*transcript).act. -update rewrites the outputs.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	for _, file := range transcriptFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := newTranscript(t, string(want)).play(string(want))
			for line := range strings.Lines(got) {
				if n := utf8.RuneCountInString(line) - 1; n > transcriptWidth && !strings.HasPrefix(line, "$ ") {
					t.Logf("a line has %d columns: %s", n, line)
				}
			}
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil { // #nosec G306 -- test data
					t.Fatal(err)
				}
			} else if got != string(want) {
				t.Errorf("%s is now\n%s\nwrite it with -update and read the difference", file, got)
			}
		})
	}
}

// TestEveryCommandHasATranscript also fails for a new command without one.
func TestEveryCommandHasATranscript(t *testing.T) {
	t.Parallel()
	played := map[string]bool{}
	root := commandLine(cli.Config{})
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, file := range transcriptFiles(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if command, ok := strings.CutPrefix(line, "$ sandbox "); ok {
				args, _ := words(t, command)
				if cmd, _, err := root.Find(args); err == nil {
					played[cmd.CommandPath()] = true
				}
			}
		}
	}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, below := range cmd.Commands() {
			visit(below)
		}
		if cmd.HasParent() && cmd.IsAvailableCommand() && !cmd.HasSubCommands() && !played[cmd.CommandPath()] {
			t.Errorf("%s is in no file of testdata/transcripts", cmd.CommandPath())
		}
	}
	visit(root)
}

func transcriptFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/transcripts/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no transcripts: ", err)
	}
	return files
}

// commandLine returns the whole command line, as main does.
func commandLine(c cli.Config) *cobra.Command {
	summary := plansummary.NewCommand()
	summary.GroupID = cli.GroupProgram
	c.Version = "0.1.0"
	c.Local = append(daemon.Commands(c), summary)
	return cli.New(c)
}

// transcript is a world with the user's directory and environment.
type transcript struct {
	*world
	repository string // URL of a Git repository for workspaces, "" for none
	dir        string
	env        map[string]string
	token      string
}

// newTranscript creates the world of a script. It has a Git repository if the script names REPOSITORY.
func newTranscript(t *testing.T, script string) *transcript {
	repository := ""
	w := newWorld(t, func(c *leasing.Config) {
		if !strings.Contains(script, "REPOSITORY") {
			return
		}
		server := gittest.New(t)
		mirrors, err := gitmirror.New(gitmirror.Config{Dir: t.TempDir(), Allow: []string{server.URL}})
		if err != nil {
			t.Fatal(err)
		}
		repository, c.Mirrors = server.Repository("team/app.git", map[string]string{"README": "hello\n"}).URL, mirrors
	})
	token, err := access.ReadToken(w.tokenFile)
	if err != nil {
		t.Fatal(err)
	}
	tr := &transcript{world: w, token: token, repository: repository}
	// Text is wrapped before DIR and TOKENS replace these paths, so they always have the same length.
	tr.dir = "/tmp/transcript-" + sandbox.RandomIDs(8)
	if err := os.Mkdir(tr.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(tr.dir); err != nil {
			t.Error(err)
		}
	})
	tr.tokenFile = filepath.Join(tr.dir, "tokens")
	if err := os.WriteFile(tr.tokenFile, []byte("default "+token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tr.env = map[string]string{
		"SANDBOX_RECONCILER_URL": w.url, "SANDBOX_RECONCILER_TOKEN": token, "XDG_CONFIG_HOME": filepath.Join(tr.dir, "config"),
	}
	return tr
}

// play runs a transcript, and returns it with the present outputs.
func (tr *transcript) play(script string) string {
	var out strings.Builder
	skipping := false
	for line := range strings.Lines(script) {
		switch {
		case strings.HasPrefix(line, "$ sandbox"):
			out.WriteString(line)
			out.WriteString(tr.command(strings.TrimPrefix(line, "$ sandbox")))
			skipping = true
		case strings.HasPrefix(line, "% "):
			out.WriteString(line)
			tr.act(strings.Fields(strings.TrimPrefix(line, "% ")))
			skipping = true
		case strings.HasPrefix(line, "# "):
			out.WriteString("\n" + line)
			skipping = true
		case !skipping:
			out.WriteString(line)
		}
	}
	return strings.TrimLeft(out.String(), "\n")
}

// command runs a command and returns its output.
func (tr *transcript) command(line string) string {
	args, stdin := words(tr.T, line)
	b := &screen{}
	cmd := commandLine(cli.Config{
		Now:    tr.Now,
		Width:  func(io.Writer) int { return transcriptWidth },
		Getenv: func(name string) string { return tr.env[name] },
	})
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(b)
	cmd.SetErr(b)
	for i := range args {
		args[i] = strings.NewReplacer("DIR", tr.dir, "URL", tr.url, "TOKENS", tr.tokenFile).Replace(args[i])
	}
	ctx, interrupt := context.WithCancel(tr.Context())
	defer interrupt()
	b.ready = interrupt
	if code := cli.Run(ctx, cmd, args); code != 0 {
		fmt.Fprintf(b, "[exit %d]\n", code)
	}
	text := b.text.String()
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return tr.normal(text)
}

// screen collects both outputs of a command, which may write them at the same time.
type screen struct {
	ready func()     // called when the command says that it is ready, as serve does
	mu    sync.Mutex // guards text
	text  bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes.Contains(p, []byte(" is ready.\n")) {
		s.ready()
	}
	return s.text.Write(p)
}

// words splits a command line. Single quotes group words; standard input follows <<<.
func words(t *testing.T, line string) (args []string, stdin string) {
	t.Helper()
	var word strings.Builder
	quoted, begun := false, false
	flush := func() {
		if begun {
			args = append(args, word.String())
		}
		word.Reset()
		begun = false
	}
	for _, r := range strings.TrimSuffix(line, "\n") {
		switch {
		case r == '\'':
			quoted, begun = !quoted, true
		case r == ' ' && !quoted:
			flush()
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	flush()
	for i, arg := range args {
		if arg == "<<<" {
			return args[:i], strings.Join(args[i+1:], " ") + "\n"
		}
	}
	return args, ""
}

var (
	randomID    = regexp.MustCompile(`\b[a-z2-7]{26}\b`)
	tokenID     = regexp.MustCompile(`\btok_[a-z2-7]{12}\b`)
	tokenText   = regexp.MustCompile(`\bsbl_[A-Za-z0-9_-]{43}`)
	secretText  = regexp.MustCompile(`\bwhsec_[A-Za-z0-9+/=]+`)
	secretID    = regexp.MustCompile(`(?m)(^|secret:|Secret )[0-9a-f]{8}\b`)
	ledgerID    = regexp.MustCompile(`\b[a-z2-7]{16}\b`)
	didRun      = regexp.MustCompile(`did:run:[a-z2-7]+`)
	machineTime = regexp.MustCompile(`\b202[6-9]-(?:09|1[0-2])-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)`)
	amount      = regexp.MustCompile(`\d+ (MiB are free|bytes)`)
	commitHash  = regexp.MustCompile(`\b[0-9a-f]{40}\b`)
	bundle      = regexp.MustCompile(`(?s)^# v2 git bundle\n(.*)\n\nPACK.*`) // "# " begins a comment here
	localPort   = regexp.MustCompile(`127\.0\.0\.1:\d{4,5}\b`)
	clockAhead  = regexp.MustCompile(`machine's by \d+(\.\d+)?m?s`)
	fraction    = regexp.MustCompile(`after \d+(\.\d+)?m?s,`)
)

// normal replaces text that varies between runs by placeholders of the same width.
func (tr *transcript) normal(text string) string {
	if tr.repository != "" {
		text = strings.ReplaceAll(text, tr.repository, "REPOSITORY")
	}
	text = strings.NewReplacer(tr.tokenFile, "TOKENS", tr.dir, "DIR", tr.url, "URL", strings.TrimPrefix(tr.url, "http://"), "HOST:PORT",
		tr.token, "sbl_…").Replace(text)
	events, err := tr.Service.ListEvents(tr.Context(), sandbox.EventFilter{})
	if err != nil {
		tr.Fatal(err)
	}
	for _, id := range randomID.FindAllString(fmt.Sprintf("%+v %s", events, eventData(events)), -1) {
		for n := len(id) - 1; n >= 5; n-- { // cut in a narrow column
			text = strings.ReplaceAll(text, id[:n]+"…", strings.Repeat("x", n)+"…")
		}
	}
	same := func(placeholder string) func(string) string {
		return func(found string) string {
			return (placeholder + strings.Repeat("x", len(found)))[:len(found)]
		}
	}
	text = randomID.ReplaceAllStringFunc(text, same(""))
	text = tokenID.ReplaceAllStringFunc(text, same("tok_"))
	text = tokenText.ReplaceAllString(text, "sbl_…")
	text = secretText.ReplaceAllString(text, "whsec_…")
	text = secretID.ReplaceAllString(text, "${1}xxxxxxxx")
	text = ledgerID.ReplaceAllStringFunc(text, same(""))
	text = didRun.ReplaceAllStringFunc(text, same("did:run:"))
	text = amount.ReplaceAllString(text, "N ${1}")
	text = bundle.ReplaceAllString(commitHash.ReplaceAllStringFunc(text, same("")), "a Git bundle with\n$1\n")
	text = localPort.ReplaceAllString(text, "127.0.0.1:PORT")
	text = clockAhead.ReplaceAllString(text, "machine's by 1ms")
	text = fraction.ReplaceAllString(text, "after 1ms,")
	return machineTime.ReplaceAllString(text, "TIME")
}

func eventData(events []sandbox.Event) string {
	var b strings.Builder
	for _, e := range events {
		b.Write(e.Data)
		b.WriteByte(' ')
	}
	return b.String()
}

// act changes the world.
func (tr *transcript) act(words []string) {
	tr.Helper()
	switch words[0] {
	case "pass": // time
		d, err := time.ParseDuration(words[1])
		if err != nil {
			tr.Fatal(err)
		}
		tr.Advance(d)
	case "wait": // until the next pass of a reconciler
		tr.Pass(3 * time.Minute)
	case "remove": // the sandbox of a lease, behind the reconciler's back
		tr.Remove(tr.sandboxOf(words[1]))
		tr.Advance(time.Second)
	case "weaken": // the sandbox of a lease
		tr.Weaken(tr.sandboxOf(words[1]), strings.Join(words[2:], " "))
	case "plant": // a sandbox of bob, in another ledger or in this one
		ledger := words[1]
		if ledger == "this" {
			info, err := tr.Service.Ledger(tr.Context())
			if err != nil {
				tr.Fatal(err)
			}
			ledger = info.ID
		}
		tr.Plant(driver.SandboxSpec{
			Handle: driver.Handle{LedgerID: ledger, EnvironmentID: "catan-7", SandboxID: "of-" + words[1],
				Instance: tr.Instance},
			LeaseID: sandbox.LeaseID("did:plc:bob", "catan-7"), AgentDID: "did:plc:bob", Generation: 2, Image: "player",
			Deadline: tr.Now().Add(time.Hour),
		})
	case "call": // a model
		l := tr.lease(words[1])
		tr.CallModels(l.EnvironmentID, sandbox.LLMCall{
			ID: "call-1", LeaseID: l.ID, Generation: l.Generation, SandboxID: l.SandboxID, AgentDID: l.AgentDID,
			Route: "main", Model: "model-1", Outcome: sandbox.LLMCompleted, StartedAt: tr.Now(), EndedAt: tr.Now(),
			Tokens: sandbox.LLMTokens{Input: 1200, Output: 300}, Cost: sandbox.USD / 125,
		})
	case "commit": // a README in the workspace of a lease
		tr.commit(words[1], strings.Join(words[2:], " "))
	case "write": // a file of the user
		file, text := filepath.Join(tr.dir, words[1]), strings.Join(words[2:], " ")+"\n"
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "REPOSITORY", tr.repository)), 0o600); err != nil {
			tr.Fatal(err)
		}
	case "read": // a file of the user, which must hold the text
		text, err := os.ReadFile(filepath.Join(tr.dir, words[1]))
		if want := strings.Join(words[2:], " "); err != nil || strings.TrimSpace(string(text)) != want {
			tr.Errorf("%s holds %q, %v; want %q", words[1], text, err, want)
		}
	case "engine": // a well-configured Docker Engine, at DIR/engine.sock
		tr.startEngine()
	case "unset": // a variable
		delete(tr.env, words[1])
	default:
		tr.Fatalf("no action %q", words[0])
	}
}

// commit commits a README in the workspace of a lease, as git in its sandbox would.
func (tr *transcript) commit(lease, text string) {
	tr.Helper()
	dir, ref := tr.TempDir(), sandbox.LeaseRef{ID: lease}
	check := func(err error) {
		tr.Helper()
		if err != nil {
			tr.Fatal(err)
		}
	}
	files, err := tr.Service.ReadFiles(tr.Context(), ref, "/workspace/app")
	check(err)
	unpack := exec.Command("tar", "-xC", dir)
	unpack.Stdin = files
	check(errors.Join(unpack.Run(), files.Close()))
	app := filepath.Join(dir, "app")
	check(os.WriteFile(filepath.Join(app, "README"), []byte(text+"\n"), 0o600))
	gittest.Git(tr, app, nil, "commit", "--quiet", "--all", "--message", "work")
	packed, err := exec.Command("tar", "-cC", dir, "app").Output()
	check(err)
	check(tr.Service.WriteFiles(tr.Context(), ref, "/workspace", bytes.NewReader(packed)))
}

// startEngine starts a fake engine, which only describes itself: doctor's findings about a real one depend on the
// machine.
func (tr *transcript) startEngine() {
	tr.Helper()
	listener, err := net.Listen("unix", filepath.Join(tr.dir, "engine.sock"))
	if err != nil {
		tr.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			var answer any = []string{}
			switch {
			case strings.HasSuffix(r.URL.Path, "/info"):
				answer = map[string]any{
					"ID": "engine-1", "ServerVersion": "29.3.0", "Architecture": "x86_64", "CgroupVersion": "2",
					"SystemTime": time.Now(), "LiveRestoreEnabled": true, "SecurityOptions": []string{"name=seccomp"},
					"MemoryLimit": true, "CpuCfsQuota": true, "PidsLimit": true,
				}
			case strings.HasSuffix(r.URL.Path, "/version"):
				answer = map[string]any{"ApiVersion": "1.54", "MinAPIVersion": "1.44"}
			}
			_ = json.NewEncoder(w).Encode(answer) // the client may have disconnected
		}),
	}}
	server.Start()
	tr.Cleanup(server.Close)
}

func (tr *transcript) sandboxOf(lease string) string {
	tr.Helper()
	return tr.lease(lease).SandboxID
}

func (tr *transcript) lease(id string) sandbox.Lease {
	tr.Helper()
	l, err := tr.Service.GetLease(tr.Context(), id)
	if err != nil {
		tr.Error(err)
	}
	return l
}
