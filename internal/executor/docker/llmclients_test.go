package docker_test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestTheAPIsOwnClientsWork runs the unmodified npm packages of OpenAI and Anthropic in a sandbox without a network.
func TestTheAPIsOwnClientsWork(t *testing.T) {
	t.Parallel()
	if os.Getenv("SANDBOX_TEST_ALL") == "" {
		t.Skip("set SANDBOX_TEST_ALL=1: it installs npm packages")
	}
	w := newModelWorld(t, clientsImage(t))
	w.put(t, func(s *sandbox.EnvironmentSpec) {
		price := sandbox.LLMModel{Input: sandbox.USD, Output: 10 * sandbox.USD}
		route := s.LLM["main"]
		route.Models = map[string]sandbox.LLMModel{"small": price, "stall": price, "gone": price, "broken": price}
		s.LLM["main"] = route
		route.LeaseLimits.Requests = 2
		s.LLM["tight"] = route
		route.API = sandbox.LLMAnthropic
		s.LLM["tight-anthropic"] = route
		route.LeaseLimits = sandbox.LLMLimits{}
		s.LLM["claude"] = route
	})
	l := w.acquire(t)
	got := w.sh(t, l, "node /clients/run.mjs")
	eventually(t, "the calls that the clients left early are recorded", func() bool {
		return !slices.ContainsFunc(w.calls(t), func(c sandbox.LLMCall) bool { return c.Outcome == sandbox.LLMRunning })
	})

	if want := w.clientsShow(l); got != want {
		t.Errorf("the clients show\n%s\nwant\n%s", got, want)
	}

	// The ledger has the upstream's own counts for each call. The gateway's refusals are not recorded.
	type call struct {
		route, model string
		outcome      sandbox.LLMOutcome
		status       int
		tokens       sandbox.LLMTokens
	}
	var calls []call
	for _, c := range slices.Backward(w.calls(t)) {
		calls = append(calls, call{c.Route, c.Model, c.Outcome, c.Status, c.Tokens})
		free := c.Outcome == sandbox.LLMRejected || c.Outcome == sandbox.LLMCompleted && c.Tokens == sandbox.LLMTokens{}
		if c.Unknown != (c.Outcome == sandbox.LLMInterrupted) || (c.Cost == 0) != free {
			t.Errorf("the cost is wrong: %+v", c)
		}
	}
	answered := func(route string) call {
		return call{route, "small", sandbox.LLMCompleted, 200, sandbox.LLMTokens{Input: 1000, CachedInput: 200, Output: 50}}
	}
	answeredMessage := func(route string) call {
		c := answered(route)
		c.tokens.CacheWrite = 100
		return c
	}
	counted := func(route string) call { return call{route, "small", sandbox.LLMCompleted, 200, sandbox.LLMTokens{}} }
	broken := func(route string) call { return call{route, "broken", sandbox.LLMRejected, 400, sandbox.LLMTokens{}} }
	interrupted := func(route, model string, status int, known sandbox.LLMTokens) call {
		return call{route, model, sandbox.LLMInterrupted, status, known}
	}
	begun := sandbox.LLMTokens{Input: 1000, CachedInput: 200, CacheWrite: 100, Output: 1} // in a message's first event
	if want := []call{
		answered("main"), answered("main"), answered("main"), answered("main"),
		interrupted("main", "stall", 200, sandbox.LLMTokens{}), broken("main"), broken("main"),
		interrupted("main", "gone", 0, sandbox.LLMTokens{}), interrupted("main", "gone", 200, sandbox.LLMTokens{}),
		answered("tight"), answered("tight"),
		answered("main"), answered("main"), broken("main"), // of the Responses API
		answeredMessage("claude"), answeredMessage("claude"), answeredMessage("claude"), answeredMessage("claude"),
		interrupted("claude", "stall", 200, begun), counted("claude"), counted("claude"), broken("claude"), broken("claude"),
		interrupted("claude", "gone", 0, sandbox.LLMTokens{}), interrupted("claude", "gone", 200, begun),
		answeredMessage("tight-anthropic"), answeredMessage("tight-anthropic"),
	}; !slices.Equal(calls, want) {
		t.Errorf("the calls are\n%v\nwant\n%v", calls, want)
	}

	// The guide's program runs exactly as shown.
	if got := w.sh(t, l, "node /clients/guide.mjs"); !strings.Contains(got, "lease="+l.ID+" ") {
		t.Errorf("the guide's program prints %q", got)
	}
}

// clientsShow returns the expected output of testdata/llmclients. Each call is one request: the clients retry no error.
func (w *modelWorld) clientsShow(l sandbox.Lease) string {
	says := func(key string) (whole, pieces, first string) {
		sum := sha256.Sum256([]byte(key))
		words := []string{fmt.Sprintf("key=%x ", sum[:8]), "lease=" + l.ID + " ", "agent=" + l.AgentDID}
		return strings.Join(words, ""), "[" + strings.Join(words, "][") + "]", words[0]
	}
	openai, openaiPieces, openaiFirst := says("Bearer " + w.key)
	claude, claudePieces, claudeFirst := says(w.key)
	const (
		broken   = "1: BadRequestError 400 invalid_request_error null: the model is broken"
		brokeOff = "1: TypeError: terminated" // from Node.js
	)
	gone := func(route string) string {
		return "1: InternalServerError 502 api_error upstream_failed: sandbox gateway: the upstream of route " + route +
			" got the request, but gave no answer: EOF. The call may have been billed"
	}
	model := func(route string) string {
		return "1: PermissionDeniedError 403 permission_error model_not_allowed: sandbox gateway: route " + route +
			` does not allow model "dear": it allows broken, gone, small, stall`
	}
	limit := func(route string) string {
		return "1: PermissionDeniedError 403 permission_error limit_reached: sandbox gateway: the lease has used 2 " +
			"requests on route " + route + " and reached lease_limits.requests, which is 2 requests"
	}
	return strings.Join([]string{
		"openai models: 1: broken,gone,small,stall",
		"openai answer: 1: " + openai + " 1200+50",
		"openai stream: 1: " + openaiPieces + " 0",
		"openai stream with usage: 1: " + openaiPieces + " 1 1200+50",
		"openai stream helper: 1: " + openai,
		"openai stream left early: 1: " + openaiFirst,
		"openai error: " + broken,
		"openai stream error: " + broken,
		"openai gone: " + gone("main"),
		"openai stream gone: " + brokeOff,
		"openai model: " + model("main"),
		"openai below the limit: 1: " + openai,
		"openai stream below the limit: 1: " + openaiPieces + " 0",
		"openai limit: " + limit("tight"),
		"openai stream limit: " + limit("tight"),
		"responses answer: 1: " + openai + " 1200+50",
		"responses stream: 1: " + openaiPieces + " 1200+50",
		"responses error: " + broken,
		"anthropic models: 1: broken,gone,small,stall",
		"anthropic answer: 1: " + claude + " 1000+100+200+50",
		"anthropic beta answer: 1: " + claude + " 1000+100+200+50",
		"anthropic stream: 1: " + claudePieces + " end_turn 50",
		"anthropic stream helper: 1: " + claude + " 1000+100+200+50",
		"anthropic stream left early: 1: " + claudeFirst,
		"anthropic count: 2: 1300+1300",
		"anthropic error: " + broken,
		"anthropic stream error: " + broken,
		"anthropic gone: " + gone("claude"),
		"anthropic stream gone: " + brokeOff,
		"anthropic model: " + model("claude"),
		"anthropic below the limit: 1: " + claude,
		"anthropic stream below the limit: 1: " + claudePieces + " end_turn 50",
		"anthropic limit: " + limit("tight-anthropic"),
		"anthropic stream limit: " + limit("tight-anthropic"),
	}, "\n") + "\n"
}

// clientsImage returns an image with a shell, the machine's Node.js, and the packages and program of
// testdata/llmclients in /clients.
func clientsImage(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS("testdata/llmclients")))
	install := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", install.Args, err, out)
	}
	must(t, os.WriteFile(filepath.Join(dir, "guide.mjs"), []byte(guideProgram(t)), 0o600))
	files := dockertest.BusyboxFiles(t)
	add := func(name, from string, mode int64) {
		content, err := os.ReadFile(from)
		must(t, err)
		files = append(files, dockertest.File{Name: strings.TrimPrefix(name, "/"), Mode: mode, Content: content})
	}
	files = append(files, dockertest.Programs(t, "node")...)
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		// Only a quarter of the packages' content is code that runs. The rest would slow down the import of the image.
		unused := []string{".ts", ".mts", ".cts", ".map", ".md"}
		if err != nil || !d.Type().IsRegular() || slices.Contains(unused, filepath.Ext(path)) {
			return err
		}
		add("clients"+strings.TrimPrefix(path, dir), path, 0o644)
		return nil
	}))
	return dockertest.Keep(t, files, "ENV PATH=/bin")
}

// guideProgram is the program in the guide to models, with this test's model. It prints the answer.
func guideProgram(t *testing.T) string {
	t.Helper()
	guide, err := os.ReadFile("../../../templates/guides/models.md.tmpl")
	must(t, err)
	_, program, _ := strings.Cut(string(guide), "```javascript\n")
	program, _, found := strings.Cut(program, "```")
	if !found || !strings.Contains(program, `"gpt-5-mini"`) {
		t.Fatalf("the guide shows the program %q", program)
	}
	return strings.Replace(program, "gpt-5-mini", "small", 1) + "console.log(answer.choices[0].message.content);\n"
}
