package guarantees

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// paths are the folders and files that CONTRIBUTING.md names from the root: in its map and in its text.
var (
	mapped = regexp.MustCompile(`(?m)^((?:main\.go|[a-z]+(?:/[a-z0-9]+)*/)) `)
	named  = regexp.MustCompile("`((?:sandbox|internal|resources|datasources|provider|reconciler|scripts|templates|docs|examples|actions)(?:/[A-Za-z0-9_.-]+)*/?)`")
)

func TestContributingNamesFoldersAndFilesThatExist(t *testing.T) {
	const root = "../.."
	text, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	var found int
	for _, r := range []*regexp.Regexp{mapped, named} {
		for _, m := range r.FindAllStringSubmatch(string(text), -1) {
			found++
			if _, err := os.Stat(filepath.Join(root, strings.TrimSuffix(m[1], "/"))); err != nil {
				t.Errorf("CONTRIBUTING.md names %s: %v", m[1], err)
			}
		}
	}
	if found < 30 {
		t.Errorf("it names %d folders and files: the expressions above find too few", found)
	}
}
