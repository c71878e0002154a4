package sdk_test

import (
	"bufio"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/sdk/internal/generate"
)

// TestEveryOperationHasAMethod: both libraries have a method for every operation of the OpenAPI document.
func TestEveryOperationHasAMethod(t *testing.T) {
	t.Parallel()
	d := document(t)
	for _, l := range libraries(t) {
		w := &world{T: t, token: "none", secret: "none", proxy: &proxy{url: "http://127.0.0.1:1"}}
		answer, failed := l.start(w).do("methods", nil, nil)
		if failed != nil {
			t.Fatalf("%s: %+v", l.name, failed)
		}
		methods := map[any]bool{}
		for _, name := range answer.([]any) {
			methods[name] = true
		}
		for _, op := range d.Operations() {
			name := generate.Method(op.ID)
			if l.name == "TypeScript" {
				name = generate.Camel(name)
			}
			if !methods[name] {
				t.Errorf("%s: operation %s has no method %s", l.name, op.ID, name)
			}
		}
	}
}

// TestErrorCodes: both libraries have the codes of the domain.
func TestErrorCodes(t *testing.T) {
	t.Parallel()
	domain := quoted(t, "../sandbox/errors.go", "The error codes.", ")")
	for file, begin := range map[string]string{
		"python/sandbox_lease/errors.py": "Code = Literal[", "typescript/src/errors.ts": "export type Code =",
	} {
		if got := quoted(t, file, begin, ""); !slices.Equal(got, domain) {
			t.Errorf("%s has the codes %v, want %v", file, got, domain)
		}
	}
}

// quoted returns the first quoted word of each line after begin, up to the line end. If end is "", it stops at a line
// without one.
func quoted(t *testing.T, file, begin, end string) (words []string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // only read
	begun := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		_, rest, found := strings.Cut(line, `"`)
		switch {
		case strings.Contains(line, begin):
			begun = true
		case begun && found:
			word, _, _ := strings.Cut(rest, `"`)
			words = append(words, word)
		case begun && (line == end || end == "" && !found):
			return words
		}
	}
	return words
}

// TestTheExampleOfTheGuide: the example has at most 8 lines, prints output as it arrives, and leaves nothing behind.
func TestTheExampleOfTheGuide(t *testing.T) {
	t.Parallel()
	for _, l := range libraries(t) {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.environment("catan-7")
			w.example(l)
		})
	}
}

// TestTheReadmes: the code in the README of a library works as printed.
func TestTheReadmes(t *testing.T) {
	t.Parallel()
	for _, l := range libraries(t) {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.environment("catan-7")
			cmd := exec.CommandContext(t.Context(), l.readme[0], l.readme[1:]...)
			cmd.Env = append(os.Environ(), w.variables()...)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, want := range []string{"build a city\nbuild a road\n", "3 7\n", "stdout", "moves.json", "/workspace/maps\n7\n",
				"0 0", "not_found", "applied\n"} {
				if !strings.Contains(string(out), want) {
					t.Errorf("it does not print %q:\n%s", want, out)
				}
			}
		})
	}
}

// TestTheReadmeOfTheProject: its programs print the moves as they arrive, and leave nothing behind.
func TestTheReadmeOfTheProject(t *testing.T) {
	t.Parallel()
	for _, l := range libraries(t) {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.environment("catan-8")
			if out := w.output(l.project); out != "city\nroad\n" {
				t.Errorf("it prints %q", out)
			}
			if l, err := w.direct.GetLease(t.Context(), "did:plc:ada::catan-8"); err != nil || l.Status != sandbox.LeaseDestroyed {
				t.Errorf("at the end, the lease is %s (%v)", l.Status, err)
			}
		})
	}
}

// TestTheComparisonWithOtherSystems: our lines in the guide's table are a working program.
func TestTheComparisonWithOtherSystems(t *testing.T) {
	t.Parallel()
	python := libraries(t)[0]
	w := newWorld(t)
	w.environment("catan-7")
	if out := w.output(python.table); out != "city\nb'city' True\n" {
		t.Errorf("it prints %q", out)
	}
}

// output runs a program against the reconciler, and returns its output.
func (w *world) output(command []string) string {
	w.Helper()
	cmd := exec.CommandContext(w.Context(), command[0], command[1:]...)
	cmd.Env = append(os.Environ(), w.variables()...)
	cmd.Stderr = &testLog{t: w.T}
	out, err := cmd.Output()
	if err != nil {
		w.Errorf("%s: %v", command, err)
	}
	return string(out)
}
