package environments_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// scores is a project in TypeScript with a passing test.
var scores = map[string]string{
	"score.ts":      "export function best(scores: number[]): number {\n  return scores[0];\n}\n",
	"score.test.ts": "import assert from 'node:assert';\nimport { best } from './score';\n\nassert.equal(best([3]), 3);\n",
	"README.md":     "# Scores\n\nTests: tsx score.test.ts\n",
}

// An agent solves a task in two turns, with a review between them: it reads, tests, changes and reviews its code. Its
// host opens a pull request for each turn.
func TestWholeCodingTask(t *testing.T) {
	t.Parallel()
	if os.Getenv("SANDBOX_TEST_LONG") == "" {
		t.Skip("a whole task is solved with SANDBOX_TEST_LONG=1")
	}
	w := newWorld(t, "coding")
	host := startGitHost(t, w.outside, scores)
	w.variables["git_host"] = host.host
	w.apply(ada)
	task := map[string]any{
		"task":        "issue-7",
		"repository":  host.url + "/acme/parser.git",
		"description": "best() must return the highest score.",
		"check":       []string{"sh", "-c", "tsx score.test.ts && tsc --noEmit --strict --target es2022 score.ts"},
	}
	bash := func(command string) answer { return uses("bash", map[string]any{"command": command}) }
	propose := func(summary string) answer { return uses("propose_change", map[string]any{"summary": summary}) }

	// First turn: the new test fails before the change, and the first change does not compile.
	w.model.say(
		bash("cat README.md score.ts").and("read", map[string]any{"path": "score.test.ts"}),
		bash("echo 'assert.equal(best([1, 5, 2]), 5);' >>score.test.ts; tsx score.test.ts"),
		uses("edit", map[string]any{"path": "score.ts", "old": "scores[0]", "new": "Math.max(...scores) as string"}),
		propose("score: return the highest"),
		uses("edit", map[string]any{"path": "score.ts", "old": " as string", "new": ""}),
		uses("read", map[string]any{"path": "/data/skills/code-review/prompt.md"}).and("bash", map[string]any{"command": "git diff"}),
		propose("score: return the highest"),
	)
	first := w.solve(host, task, 1)
	asked := w.model.questions()
	results := seen(asked[len(asked)-1])
	for i, part := range map[int]string{
		0: "return scores[0]", 1: "import assert", 2: "AssertionError", 4: "error TS", 6: "# Skill: looking over your own change",
		7: "+  return Math.max(...scores);",
	} {
		if !strings.Contains(results[i], part) {
			t.Errorf("the result %d has no %q: %s", i, part, results[i])
		}
	}

	// The review asks for another change. The first one is merged.
	host.run(t, host.bare, "update-ref", "refs/heads/main", first)
	task["task"], task["description"] = "issue-7-review", "best([]) must be 0, and not -Infinity."
	w.model.say(
		bash("git log --format=%s -1; tsx -e \"import { best } from './score'; console.log(best([]))\""),
		uses("write", map[string]any{"path": "score.ts",
			"content": "export function best(scores: number[]): number {\n  return Math.max(0, ...scores);\n}\n"}),
		bash("echo 'assert.equal(best([]), 0);' >>score.test.ts; tsx score.test.ts"),
		propose("score: the best of none is 0"),
	)
	second := w.solve(host, task, 2)
	asked = w.model.questions()
	if results := seen(asked[len(asked)-1]); results[0] != "score: return the highest\n-Infinity\n" || results[2] != "" {
		t.Errorf("in the second turn, the model has seen %q", results)
	}
	if text := host.run(t, host.bare, "show", second+":score.ts"); !strings.Contains(text, "Math.max(0, ...scores)") {
		t.Errorf("the solution is\n%s", text)
	}
	if opened := host.opened(); len(opened) != 2 || opened[1].Title != "score: the best of none is 0" {
		t.Errorf("the pull requests are %+v", opened)
	}
	w.bill(ada)
	w.shownBill(ada)
	w.send("task.complete", "")
	if n := w.running(); n != 0 {
		t.Errorf("%d sandboxes remain after the task", n)
	}
	w.destroy()
}

// solve runs a turn of ada and opens the pull request for its change. It returns the branch.
func (w *world) solve(host *gitHost, task map[string]any, turn int) (branch string) {
	w.Helper()
	record := w.tell(ada, "task.turn.notify", turn, task)
	var action struct{ Action, Branch, Reason string }
	must(w.T, json.Unmarshal(record.Record.Action, &action))
	if action.Action != "propose_change" {
		w.Fatalf("turn %d is %s", turn, record.Record.Action)
	}
	if out, err := w.tryPullRequest(host, string(record.Record.Action)); err != nil {
		w.Fatalf("pull_request.py: %v\n%s", err, out)
	}
	return action.Branch
}
