// Package guarantees checks that the tests of the documented guarantees exist.
package guarantees

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// cited matches a test or a benchmark of a guarantee. The package precedes the first test of a row's group.
var cited = regexp.MustCompile("`([a-z/]+)` ((?:`(?:Test|Benchmark|Fuzz)[A-Za-z0-9]+`(?: \\([^)]*\\))?(?:, )?)+)")

func TestEveryGuaranteeNamesTestsThatExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "templates", "guides", "guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		columns := strings.Split(line, "|")
		if len(columns) != 5 || strings.HasPrefix(columns[1], "-") || strings.TrimSpace(columns[1]) == "guarantee" {
			continue
		}
		groups := cited.FindAllStringSubmatch(columns[3], -1)
		if len(groups) == 0 {
			t.Errorf("no test is named for: %s", columns[1])
		}
		for _, g := range groups {
			source := testsOf(t, g[1])
			for _, name := range regexp.MustCompile("(?:Test|Benchmark|Fuzz)[A-Za-z0-9]+").FindAllString(g[2], -1) {
				if !strings.Contains(source, "func "+name+"(") {
					t.Errorf("package %s has no %s, which must prove: %s", g[1], name, columns[1])
				}
			}
		}
	}
}

// testsOf returns the source of a package's tests.
func testsOf(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
