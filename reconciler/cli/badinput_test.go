package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
)

// A script with an unset variable must not get more than it wanted.
func TestAnEmptyListOrFilterIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	create := []string{"token", "create", "team", "--scope", "admin"}
	for _, empty := range []string{"", "a-*,", ",a-*", "a-*,,b-*", " "} {
		w.want(w.run(append(create[:5:5], "--environment", empty)...), exit.Usage, "--environment", "must not")
	}
	for _, args := range [][]string{
		{"token", "create", "team", "--scope", ""},
		append(create[:5:5], "--environment", "a-*", "--ceiling", ""),
		{"token", "rotate", "team", "--ceiling", ""},
		{"lease", "list", "--environment", ""},
		{"lease", "list", "--labels", ""},
		{"env", "list", "--labels", " "},
		{"cost", "--environment", ""},
		{"events", "--environment", ""},
		{"audit", "--environment", ""},
		{"adopt", "--environment", ""},
		{"drift", "--environment", ""},
		{"state", "list", "--environment", ""},
		{"llm-calls", "--environment", ""},
		{"agent", "list", "--environment", ""},
	} {
		w.want(w.run(args...), exit.Usage, args[len(args)-2], "must not be empty")
	}
	if list := w.run("token", "list", "--all"); strings.Contains(list.out, "team") {
		t.Errorf("a refused command created a token:\n%s", list.out)
	}
	w.want(w.run(append(create[:5:5], "--environment", "a-*,b-*", "--environment", "c-*")...), exit.Done, "a-*,b-*,c-*")
}

func TestSettingsThatDoNotFitAreNamedAsTheFileSpellsThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "settings.yaml")
	for text, problem := range map[string]string{
		"id: a\nttl: 5":                    `settings.yaml: ttl: must be a string: "5" is not a duration such as "90s"`,
		"id: a\nimgae: x":                  "settings.yaml: imgae: is an unknown field; did you mean image?",
		"id: a\nresources: {memory_mb: x}": "settings.yaml: resources.memory_mb: must be a whole number",
		"id: a\nmounts: [{source: 1}]":     "settings.yaml: mounts[0].source: must be a string",
		"- id: a":                          "settings.yaml: must be an object",
		"id: a\nlabels: {1: x}":            "settings.yaml: a key is not a string",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := w.run("env", "apply", "--file", file)
		w.want(r, exit.Usage, problem)
		if strings.Contains(r.err, "Go ") || strings.Contains(r.err, "interface") || strings.Contains(r.err, "json:") {
			t.Errorf("%q: the error shows how the program is written: %s", text, r.err)
		}
	}
	create := []string{"token", "create", "team", "--scope", "admin", "--environment", "a", "--ceiling"}
	for pair, problem := range map[string]string{
		"foo=1":         "--ceiling foo=1: foo: is an unknown field",
		"memory_m=1":    "memory_m: is an unknown field; did you mean memory_mb?",
		"memory_mb=big": "--ceiling memory_mb=big: memory_mb: must be a whole number",
		"root=1":        "root: must be true or false",
	} {
		if r := w.run(append(create[:8:8], pair)...); r.code != exit.Usage || !strings.Contains(r.err, problem) {
			t.Errorf("--ceiling %s: exit code %d: %s, want %s", pair, r.code, r.err, problem)
		}
	}
}
