package environments_test

import (
	"encoding/json"
	"net"
	"strings"
	"testing"
)

// parser is a repository with a bug, and a test of it that does not see the bug.
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
	task := map[string]any{
		"task":        "issue-1024",
		"repository":  host.url + "/acme/parser.git",
		"description": "numbers('') must be the empty list.",
		"check":       []string{"python3", "-m", "unittest", "--quiet"},
	}

	// The first change breaks what the check knows; told so, the model repairs it.
	wrong := change(t, "parser: accept empty input", map[string]any{"parser.py": "def numbers(text):\n    return []\n"})
	right := change(t, "parser: accept empty input", map[string]any{
		"parser.py": "def numbers(text):\n    return [int(word) for word in text.split(',') if word]\n",
		"test_parser.py": parser["test_parser.py"] +
			"\n    def test_empty(self):\n        self.assertEqual(numbers(''), [])\n",
	})
	w.model.say(wrong, right)
	record := w.tell(ada, "task.turn.notify", 1, task)
	if record.Collection != "task.result" ||
		!strings.Contains(string(record.Record.Action), `"branch": "agent/plc-ada/issue-1024"`) {
		t.Fatalf("the record is %s in %s", record.Record.Action, record.Collection)
	}
	asked := w.model.questions()
	if len(asked) != 2 || !strings.Contains(asked[0][0].Content, "# Skill: a coding task") ||
		!strings.Contains(asked[0][1].Content, "=== parser.py\ndef numbers") ||
		!strings.Contains(asked[1][3].Content, "FAILED (failures=1)") {
		t.Errorf("the model was asked %+v", asked)
	}

	// The sandbox can read and not push; its host takes the patch out, pushes and opens the pull request.
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

	// What an agent may not touch is refused, whatever it proposes.
	w.model.say(change(t, "ci: help", map[string]any{".github/workflows/ci.yaml": "on: push\n"}))
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
		t.Errorf("after the merge, %d sandboxes are there", n)
	}
	w.destroy()
}

// change is an answer of the model.
func change(t *testing.T, summary string, files map[string]any) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{"summary": summary, "files": files})
	must(t, err)
	return string(text)
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
	url := "http://" + net.JoinHostPort(w.outside.address, port) // names of sandboxes are nobody else's
	return w.tryPython(action, "pull_request.py", ada, w.name, "--repository", url+"/acme/parser.git", "--api", url+"/api")
}
