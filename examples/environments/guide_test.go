package environments_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// shown returns the only block of the guide in a language that contains a text.
func shown(t *testing.T, language, text string) string {
	t.Helper()
	guide, err := os.ReadFile("../../templates/guides/environments.md.tmpl")
	must(t, err)
	var found []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(guide), -1) {
		if strings.Contains(m[1], text) {
			found = append(found, m[1])
		}
	}
	if len(found) != 1 {
		t.Fatalf("the guide has %d blocks of %s with %s", len(found), language, text)
	}
	return found[0]
}

// console runs the commands of the guide's console block that contains a text. It replaces the names of the guide by
// those of this world, and checks that the commands print what the guide shows.
func (w *world) console(text string, names ...string) {
	w.Helper()
	names = append(names, "dungeon-3", w.name, "host/", absolute(w.T, "host")+"/")
	var commands, prints []string
	for line := range strings.Lines(strings.NewReplacer(names...).Replace(shown(w.T, "console", text))) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			commands = append(commands, command)
		} else {
			prints = append(prints, strings.TrimSpace(line))
		}
	}
	cmd := exec.CommandContext(w.Context(), "bash", "-euc", strings.Join(commands, ""))
	cmd.Dir = w.TempDir()
	cmd.Env = append(os.Environ(), append(w.terraform.Env, "PYTHONDONTWRITEBYTECODE=1")...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.Fatalf("%s: %v\n%s", strings.Join(commands, ""), err, out)
	}
	for _, line := range prints {
		if !strings.Contains(string(out), line) {
			w.Errorf("the guide says that\n%sprints\n%s\nand it prints\n%s", strings.Join(commands, ""), line, out)
		}
	}
}

// toldInTheGuide checks that lines of JSON have each object that the guide shows, except for its duration.
func toldInTheGuide(t *testing.T, lines string) {
	t.Helper()
	var told []map[string]any
	for line := range strings.Lines(lines) {
		var e map[string]any
		if json.Unmarshal([]byte(line), &e) == nil {
			told = append(told, withoutDuration(e))
		}
	}
	for line := range strings.Lines(shown(t, "json", "tool.invoke")) {
		var want map[string]any
		must(t, json.Unmarshal([]byte(line), &want))
		want = withoutDuration(want)
		found := false
		for _, e := range told {
			found = found || reflect.DeepEqual(e, want)
		}
		if !found {
			t.Errorf("the agent does not write %sbut\n%s", line, lines)
		}
	}
}

func withoutDuration(e map[string]any) map[string]any {
	if _, ok := e["duration_ms"].(float64); ok {
		e["duration_ms"] = 0.0
	}
	return e
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	must(t, err)
	return path
}
