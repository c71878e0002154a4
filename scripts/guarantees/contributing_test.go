package guarantees

import (
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// named matches a folder or file in CONTRIBUTING.md by its path from the root, identifier a name of code.
var (
	named = regexp.MustCompile("`((?:sandbox|internal|resources|datasources|provider|reconciler|scripts|templates|docs|" +
		"examples|actions)(?:/[A-Za-z0-9_.-]+)*/?)`")
	identifier = regexp.MustCompile("`([A-Za-z]+)`")
)

func contributing(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

func TestContributingNamesFoldersAndFilesThatExist(t *testing.T) {
	t.Parallel()
	found := named.FindAllStringSubmatch(contributing(t), -1)
	for _, m := range found {
		if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
			t.Errorf("CONTRIBUTING.md names %s: %v", m[1], err)
		}
	}
	if len(found) < 20 {
		t.Errorf("it names %d folders and files: the expression above finds too few", len(found))
	}
}

// TestTheMapHasEachPackageOnOneScreen: the map names existing folders, and each folder with code except a driver's own.
func TestTheMapHasEachPackageOnOneScreen(t *testing.T) {
	t.Parallel()
	_, text, _ := strings.Cut(contributing(t), "## How it is laid out\n\n```\n")
	text, _, _ = strings.Cut(text, "```")
	if n := strings.Count(text, "\n"); n > 50 {
		t.Errorf("the map has %d lines, more than a screen", n)
	}
	entry := regexp.MustCompile(`^( *)((?:main\.go|[a-z]+/)(?: [a-z]+/)*)(?: {2,}|$)`)
	under, onMap := "", make(map[string]bool)
	for line := range strings.Lines(text) {
		m := entry.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue
		}
		if m[1] == "" {
			under = m[2]
		}
		for _, name := range strings.Fields(m[2]) {
			if m[1] != "" {
				name = under + name
			}
			onMap[strings.TrimSuffix(name, "/")] = true
			if _, err := os.Stat(filepath.Join(root, name)); err != nil {
				t.Errorf("the map names %s: %v", name, err)
			}
		}
	}
	for _, path := range product(t) {
		folders := strings.Split(filepath.ToSlash(filepath.Dir(path)), "/")
		if folders[0] == "internal" {
			folders[0] = "internal/" + folders[1]
		}
		if folders[0] != "." && folders[0] != "examples" && !onMap[folders[0]] {
			t.Errorf("the map does not name %s, which has %s", folders[0], path)
			onMap[folders[0]] = true // once is enough
		}
	}
}

// TestRecipesNameCodeThatExists: each type and function of a recipe is declared in a file, or a folder, that it names.
func TestRecipesNameCodeThatExists(t *testing.T) {
	t.Parallel()
	for _, title := range []string{"Add a setting of a lease", "Add a backend", "Add a hook"} {
		text, _ := recipe(t, title)
		declared := make(map[string]bool)
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			for _, path := range product(t) {
				if path == m[1] || filepath.ToSlash(filepath.Dir(path)) == m[1] {
					maps.Copy(declared, declaredIn(t, path))
				}
			}
		}
		found := identifier.FindAllStringSubmatch(text, -1)
		if len(found) == 0 {
			t.Errorf("recipe %q names no code", title)
		}
		for _, m := range found {
			if !declared[m[1]] {
				t.Errorf("recipe %q names %s, but none of its files declares it", title, m[1])
			}
		}
	}
}

// declaredIn returns the types, functions and methods of a file.
func declaredIn(t *testing.T, path string) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names[d.Name.Name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if ty, ok := spec.(*ast.TypeSpec); ok {
					names[ty.Name.Name] = true
				}
			}
		}
	}
	return names
}

// TestTheRecipeOfABackendNamesEachFileThatKnowsTheBackends: a new backend must be added to each file that names the
// driver or the constant of both Docker and Cloudflare.
func TestTheRecipeOfABackendNamesEachFileThatKnowsTheBackends(t *testing.T) {
	t.Parallel()
	docker := regexp.MustCompile(`\bsandbox\.Docker\b|"[a-z./-]+/internal/executor/docker"`)
	cloudflare := regexp.MustCompile(`\bsandbox\.Cloudflare\b|"[a-z./-]+/internal/executor/cloudflare(/deploy)?"`)
	knowing := []string{"sandbox/environment.go"} // it declares them
	for _, path := range product(t) {
		source, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(path, "scripts/") && docker.Match(source) && cloudflare.Match(source) {
			knowing = append(knowing, path)
		}
	}
	slices.Sort(knowing)
	if _, files := recipe(t, "Add a backend"); !slices.Equal(files, knowing) {
		t.Errorf("the recipe names the files\n%s\nand these know both backends:\n%s", strings.Join(files, "\n"),
			strings.Join(knowing, "\n"))
	}
}

// recipe returns the text of a recipe, and the files of code that it names.
func recipe(t *testing.T, title string) (text string, files []string) {
	t.Helper()
	_, text, found := strings.Cut(contributing(t), "\n**"+title+".**")
	if !found {
		t.Fatalf("CONTRIBUTING.md has no recipe %q", title)
	}
	text, _, _ = strings.Cut(text, "\n**")
	for _, m := range named.FindAllStringSubmatch(text, -1) {
		if strings.HasSuffix(m[1], ".go") {
			files = append(files, m[1])
		}
	}
	slices.Sort(files)
	return text, slices.Compact(files)
}

// TestTheRecipeOfASettingNamesEachFileThatCopiesSettings: a new setting must be added to each file that names all
// settings of a lease.
func TestTheRecipeOfASettingNamesEachFileThatCopiesSettings(t *testing.T) {
	t.Parallel()
	var settings []reflect.StructField
	for f := range reflect.TypeFor[sandbox.LeaseSettings]().Fields() {
		settings = append(settings, f)
	}
	var copying []string
	for _, path := range product(t) {
		words := wordsOf(t, path)
		if !slices.ContainsFunc(settings, func(f reflect.StructField) bool {
			attribute, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			return !words[f.Name] && !words[attribute]
		}) {
			copying = append(copying, path)
		}
	}
	if _, files := recipe(t, "Add a setting of a lease"); !slices.Equal(files, copying) {
		t.Errorf("the recipe names the files\n%s\nand these have all settings of a lease:\n%s", strings.Join(files, "\n"),
			strings.Join(copying, "\n"))
	}
}

// product returns the Go files without tests and test suites, by their path from the root.
func product(t *testing.T) (files []string) {
	t.Helper()
	tests := regexp.MustCompile(`_test\.go$|test/|/fake/|/servicetest/`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path = filepath.ToSlash(strings.TrimPrefix(path, root+"/"))
		switch {
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "node_modules"):
			return fs.SkipDir
		case strings.HasSuffix(path, ".go") && !tests.MatchString(path):
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	return files
}

// wordsOf returns the identifiers and string literals of a file, without comments and without words in longer strings.
func wordsOf(t *testing.T, path string) map[string]bool {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile(path, -1, len(source)), source, nil, 0)
	words := make(map[string]bool)
	for {
		switch _, kind, text := s.Scan(); kind {
		case token.EOF:
			return words
		case token.IDENT:
			words[text] = true
		case token.STRING:
			words[strings.Trim(text, "\"`")] = true
		}
	}
}
