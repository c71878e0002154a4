package environments_test

import (
	"encoding/json"
	"net"
	"strings"
	"testing"
)

// parser is a repository with a bug that its test does not detect.
var parser = map[string]string{
	"parser.py": "def numbers(text):\n    return [int(word) for word in text.split(',')]\n",
	"test_parser.py": "import unittest\nfrom parser import numbers\n\nclass Numbers(unittest.TestCase):\n" +
		"    def test_numbers(self):\n        self.assertEqual(numbers('1,2'), [1, 2])\n",
}

func TestCoding(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "coding")
	host := startGitHost(t, w.outside, parser)
	w.variables["git_host"] = host.host
	w.apply(ada)
	var task map[string]any // the guide's, with the URL of this host
	must(t, json.Unmarshal([]byte(strings.Replace(shown(t, "json", `"task"`), "https://github.com", host.url, 1)), &task))

	// The agent reads, changes and tests with tools. Its first change fails the check. The agent learns that, and repairs
	// it.
	w.model.say(
		uses("read", map[string]any{"path": "parser.py"}),
		uses("write", map[string]any{"path": "parser.py", "content": "def numbers(text):\n    return []\n"}),
		uses("propose_change", map[string]any{"summary": "parser: accept empty input"}),
		uses("write", map[string]any{"path": "parser.py",
			"content": "def numbers(text):\n    return [int(word) for word in text.split(',') if word]\n"}).
			and("edit", map[string]any{"path": "test_parser.py", "old": "[1, 2])\n",
				"new": "[1, 2])\n\n    def test_empty(self):\n        self.assertEqual(numbers(''), [])\n"}),
		uses("bash", map[string]any{"command": "python -B -m unittest && git diff --stat"}),
		uses("propose_change", map[string]any{"summary": "parser: accept empty input"}),
	)
	record := w.tell(ada, "task.turn.notify", 1, task)
	if record.Collection != "task.result" ||
		!strings.Contains(string(record.Record.Action), `"branch": "agent/plc-ada/issue-1024"`) {
		t.Fatalf("the record is %s in %s", record.Record.Action, record.Collection)
	}
	asked := w.model.questions()
	if len(asked) != 6 || !strings.Contains(asked[0][0].Content, "# Skill: a coding task") ||
		!strings.Contains(asked[0][0].Content, "/data/skills/code-review/prompt.md") ||
		!strings.Contains(asked[0][1].Content, "parser.py\ntest_parser.py") {
		t.Fatalf("the model was asked %+v", asked)
	}
	if results := seen(asked[5]); results[0] != parser["parser.py"] || !strings.Contains(results[2], "FAILED (failures=1)") ||
		!strings.Contains(results[5], "2 files changed") {
		t.Errorf("the model has seen %q", results)
	}

	// The sandbox can read but not push. Its host takes the patch, pushes it and opens the pull request.
	if said := w.shell(ada, "cd /workspace/src/issue-1024 && git push origin HEAD"); !strings.Contains(said, "403") &&
		!strings.Contains(said, "401") && !strings.Contains(said, "could not read Username") {
		t.Errorf("a push out of the sandbox says %q", said)
	}
	w.pullRequest(host, string(record.Record.Action))
	if opened := host.opened(); len(opened) != 1 || opened[0] != (pull{
		"parser: accept empty input", "agent/plc-ada/issue-1024", "main", "By did:plc:ada in " + w.name + ".",
	}) {
		t.Errorf("the pull requests are %+v", opened)
	}
	if log := host.run(t, host.bare, "log",
		"--format=%an: %s", "main..agent/plc-ada/issue-1024"); log != "did:plc:ada: parser: accept empty input\n" {
		t.Errorf("the branch has\n%s", log)
	}
	if text := host.run(t, host.bare, "show", "agent/plc-ada/issue-1024:parser.py"); !strings.Contains(text, "if word]") {
		t.Errorf("the pushed file is\n%s", text)
	}

	// The host refuses changes of protected files, whatever the agent proposes.
	w.model.say(uses("write", map[string]any{"path": ".github/workflows/ci.yaml", "content": "on: push\n"}).
		and("propose_change", map[string]any{"summary": "ci: help"}))
	task["task"] = "issue-1025"
	action, err := json.Marshal(w.turn(ada, task))
	must(t, err)
	if _, err := w.tryPullRequest(host, string(action)); err == nil ||
		!strings.Contains(err.Error(), ".github/workflows/ci.yaml is nothing that an agent may change") {
		t.Errorf("a changed workflow: %v", err)
	}
	if branches := host.run(t, host.bare, "branch", "--list", "agent/*"); len(strings.Fields(branches)) != 1 ||
		len(host.opened()) != 1 {
		t.Errorf("the host has the branches\n%sand the pull requests %+v", branches, host.opened())
	}

	w.send("pr.merged", "")
	if n := w.running(); n != 0 {
		t.Errorf("%d sandboxes remain after the merge", n)
	}
	w.destroy()
}

func (w *world) pullRequest(host *gitHost, action string) {
	w.Helper()
	out, err := w.tryPullRequest(host, action)
	if err != nil || !strings.Contains(out, `"number": 1`) {
		w.Fatalf("pull_request.py: %v\n%s", err, out)
	}
}

func (w *world) tryPullRequest(host *gitHost, action string) (string, error) {
	w.Helper()
	_, port, err := net.SplitHostPort(host.host)
	must(w.T, err)
	url := "http://" + net.JoinHostPort(w.outside.address, port) // only sandboxes can resolve their names
	return w.tryPython(action, "pull_request.py", ada, w.name, "--repository", url+"/acme/parser.git", "--api", url+"/api")
}
