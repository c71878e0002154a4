// Package release_test checks that the parts of a release agree. No build checks that.
package release_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const root = "../.."

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	must(t, err)
	return string(text)
}

// TestVersionsAgree: each tool reads the version from its own place, and all places agree.
func TestVersionsAgree(t *testing.T) {
	t.Parallel()
	found := func(name, pattern string) string {
		t.Helper()
		m := regexp.MustCompile(pattern).FindStringSubmatch(read(t, name))
		if m == nil {
			t.Fatalf("%s has no version: nothing matches %s", name, pattern)
		}
		return m[1]
	}
	want := found("GNUmakefile", `(?m)^INSTALL_VERSION \?= (.*)$`)
	var lock struct {
		Version  string
		Packages map[string]struct{ Version string }
	}
	must(t, json.Unmarshal([]byte(read(t, "sdk/typescript/package-lock.json")), &lock))
	for what, got := range map[string]string{
		"CHANGELOG.md":                     found("CHANGELOG.md", `(?m)^## \[(\d.*?)\]`),
		"sdk/python/pyproject.toml":        found("sdk/python/pyproject.toml", `(?m)^version = "(.*)"$`),
		"sdk/typescript/package.json":      found("sdk/typescript/package.json", `(?m)^  "version": "(.*)",$`),
		"sdk/typescript/package-lock.json": lock.Version,
		"its package":                      lock.Packages[""].Version,
	} {
		if got != want {
			t.Errorf("%s says %s, and GNUmakefile %s", what, got, want)
		}
	}
}

// workflow is a workflow of GitHub Actions.
type workflow struct {
	Permissions map[string]string `yaml:"permissions"`
	Jobs        map[string]struct {
		Steps []struct {
			Uses string `yaml:"uses"`
			Run  string `yaml:"run"`
		} `yaml:"steps"`
	} `yaml:"jobs"`
}

// TestWorkflowsCallWhatIsHere: workflows call existing targets of make, with explicit permissions.
func TestWorkflowsCallWhatIsHere(t *testing.T) {
	t.Parallel()
	makefile := read(t, "GNUmakefile")
	for _, name := range []string{"ci.yml", "release.yml"} {
		var w workflow
		must(t, yaml.Unmarshal([]byte(read(t, ".github/workflows/"+name)), &w))
		if w.Permissions == nil {
			t.Errorf("%s leaves its permissions to the repository's defaults", name)
		}
		targets := 0
		for job, j := range w.Jobs {
			for _, step := range j.Steps {
				for _, call := range regexp.MustCompile(`(?m)\bmake ([a-z-]+)`).FindAllStringSubmatch(step.Run, -1) {
					targets++
					if !strings.Contains(makefile, "\n"+call[1]+":") {
						t.Errorf("%s: %s calls make %s, which does not exist", name, job, call[1])
					}
				}
				for _, script := range regexp.MustCompile(`\S*(?:scripts|\.ci)/\S+`).FindAllString(step.Run, -1) {
					if _, err := os.Stat(filepath.Join(root, script)); err != nil {
						t.Errorf("%s: %s: %v", name, job, err)
					}
				}
			}
		}
		if name == "release.yml" && targets == 0 {
			t.Errorf("%s calls no target of make", name)
		}
	}
}
