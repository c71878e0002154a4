package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	longMode = `"SANDBOX_TEST_LONG"`
	allMode  = `"SANDBOX_TEST_ALL"`
)

// TestEveryLongTestIsRun: make test-long runs each test that checks for the long mode in that mode. It sets
// SANDBOX_TEST_ALL if the test needs the local Cloudflare account. scripts/long-tests does both for the tests it names.
func TestEveryLongTestIsRun(t *testing.T) {
	t.Parallel()
	runs, listed := longRuns(t), listedTests(t)
	seen := 0
	eachTest(t, func(dir, name string, uses map[string]bool) {
		if !uses[longMode] {
			return
		}
		seen++
		if listed[name] != dir && !slices.ContainsFunc(runs, func(r longRun) bool {
			return r.has(dir, name) && (r.all || !uses[allMode] && !uses["cloudflaretest"])
		}) {
			t.Errorf("%s in %s asks for SANDBOX_TEST_LONG, and make test-long does not run it", name, dir)
		}
	})
	if seen < 20 {
		t.Errorf("%d long tests were found", seen)
	}
}

// TestListedTestsExist: scripts/long-tests names tests, and leaves no other test of the same name out.
func TestListedTestsExist(t *testing.T) {
	t.Parallel()
	listed := listedTests(t)
	for name, dir := range listed {
		if testsOf(t, dir)[name] == nil {
			t.Errorf("%s has no test %s", dir, name)
		}
	}
	eachTest(t, func(dir, name string, _ map[string]bool) {
		if of, is := listed[name]; is && of != dir {
			t.Errorf("%s has a test %s too, which make test would leave out", dir, name)
		}
	})
}

// entry is a line of the list in scripts/long-tests.
var entry = regexp.MustCompile(`^([a-z][\w/]*) (Test\w+)$`)

// listedTests returns the package of each test in scripts/long-tests, whose lines must be in order.
func listedTests(t *testing.T) map[string]string {
	t.Helper()
	content, err := os.ReadFile("scripts/long-tests")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(content), "<<'LIST'\n")
	list, _, _ = strings.Cut(list, "LIST\n")
	lines := strings.Split(strings.TrimSuffix(list, "\n"), "\n")
	if !slices.IsSorted(lines) || len(slices.Compact(slices.Clone(lines))) != len(lines) || len(lines) < 20 {
		t.Errorf("the %d lines are not in order, or some are there twice", len(lines))
	}
	listed := map[string]string{}
	for _, line := range lines {
		found := entry.FindStringSubmatch(line)
		if found == nil {
			t.Fatalf("%q is not a package and a test", line)
		}
		listed[found[2]] = found[1]
	}
	return listed
}

// eachTest calls fn for each test of each package, with what testsOf says that it uses.
func eachTest(t *testing.T, fn func(dir, name string, uses map[string]bool)) {
	t.Helper()
	err := filepath.WalkDir(".", func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); name != "." && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "testdata") {
			return filepath.SkipDir
		}
		for name, uses := range testsOf(t, dir) {
			fn(dir, name, uses)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// longRun is a run of tests by make test-long.
type longRun struct {
	packages []string
	tests    *regexp.Regexp // nil means all
	all      bool           // with SANDBOX_TEST_ALL
}

func (r longRun) has(dir, test string) bool {
	return slices.ContainsFunc(r.packages, func(p string) bool {
		parent, deep := strings.CutSuffix(p, "/...")
		return dir == parent || deep && strings.HasPrefix(dir, parent+"/")
	}) && (r.tests == nil || r.tests.MatchString(test))
}

var (
	recipe   = regexp.MustCompile(`(?m)^test-long:.*\n((?:\t.*\n)+)`)
	chosen   = regexp.MustCompile(`-run (?:'([^']+)'|(\S+))`)
	packages = regexp.MustCompile(` \./(\S+)`)
)

// longRuns reads the runs from the makefile.
func longRuns(t *testing.T) (runs []longRun) {
	t.Helper()
	content, err := os.ReadFile("GNUmakefile")
	if err != nil {
		t.Fatal(err)
	}
	found := recipe.FindSubmatch(content)
	if found == nil {
		t.Fatal("GNUmakefile has no target test-long")
	}
	if !strings.Contains(string(found[1]), "scripts/long-tests run\n") {
		t.Error("make test-long does not run scripts/long-tests")
	}
	for line := range strings.Lines(strings.ReplaceAll(string(found[1]), "\\\n", "")) {
		if !strings.Contains(line, "SANDBOX_TEST_LONG=1") {
			continue
		}
		r := longRun{all: strings.Contains(line, "SANDBOX_TEST_ALL=1")}
		for _, p := range packages.FindAllStringSubmatch(line, -1) {
			r.packages = append(r.packages, p[1])
		}
		if run := chosen.FindStringSubmatch(line); run != nil {
			name, _, _ := strings.Cut(strings.ReplaceAll(run[1]+run[2], "$$", "$"), "/")
			r.tests = regexp.MustCompile(name)
		}
		runs = append(runs, r)
	}
	return runs
}

// testsOf returns the identifiers and string literals that each test of a directory uses: in its own function, and in
// the functions of the package's tests that it calls.
func testsOf(t *testing.T, dir string) map[string]map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	functions := map[string]*ast.FuncDecl{}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if f, is := d.(*ast.FuncDecl); is && f.Body != nil {
				functions[f.Name.Name] = f
			}
		}
	}
	tests := map[string]map[string]bool{}
	for name := range functions {
		if strings.HasPrefix(name, "Test") && name != "TestMain" {
			uses := map[string]bool{}
			collect(functions, name, uses)
			tests[name] = uses
		}
	}
	return tests
}

func collect(functions map[string]*ast.FuncDecl, name string, uses map[string]bool) {
	f := functions[name]
	if f == nil {
		return
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		var used string
		switch n := n.(type) {
		case *ast.Ident:
			used = n.Name
		case *ast.BasicLit:
			used = n.Value
		}
		if used != "" && !uses[used] {
			uses[used] = true
			collect(functions, used, uses)
		}
		return true
	})
}
