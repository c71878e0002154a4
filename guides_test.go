package main

import (
	"bufio"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/plansummary"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/daemon"
)

// TestCommandsOfGuidesExist reads every command `sandbox …` of the README, the guides and the examples. The command and
// its flags must exist.
func TestCommandsOfGuidesExist(t *testing.T) {
	t.Parallel()
	var files []string
	for _, pattern := range []string{
		"README.md", "CONTRIBUTING.md", "templates/*.tmpl", "templates/*/*", "examples/*/*/*",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d files (%v)", pattern, len(found), err)
		}
		files = append(files, found...)
	}
	seen := 0
	for _, file := range files {
		for _, line := range commandsIn(t, file) {
			seen++
			checkCommand(t, file, line)
		}
	}
	if seen < 60 {
		t.Errorf("%d commands were read", seen)
	}
}

var (
	// shown is a command in a line of prose.
	shown = regexp.MustCompile("`sandbox ([^`]+)`")
	// typed is a command in a block of code, after an optional prefix.
	typed = regexp.MustCompile(`^\s*(?:\$ |until |[A-Z_]+=\S+ )*sandbox (.+)$`)
	// word is an argument of a shell, quoted or not.
	word = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)
)

// commandsIn returns the arguments of the commands in a file.
func commandsIn(t *testing.T, file string) (lines []string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // only read
	inCode, before := strings.HasSuffix(file, ".sh"), ""
	for s := bufio.NewScanner(f); s.Scan(); {
		line := before + s.Text()
		before = ""
		switch {
		case strings.HasPrefix(line, "```"):
			inCode = line == "```sh" || line == "```shell" || line == "```console"
		case inCode && strings.HasSuffix(line, `\`):
			before = strings.TrimSuffix(line, `\`)
		case inCode:
			if m := typed.FindStringSubmatch(line); m != nil {
				lines = append(lines, m[1])
			}
		default:
			for _, m := range shown.FindAllStringSubmatch(line, -1) {
				lines = append(lines, m[1])
			}
		}
	}
	return lines
}

// checkCommand finds a command and parses its flags. The arguments after -- belong to the program in the sandbox.
func checkCommand(t *testing.T, file, line string) {
	t.Helper()
	var args []string
	for _, w := range word.FindAllString(line, -1) {
		if w == "--" || w == "…" || strings.ContainsAny(w[:1], "#|>&;") || strings.HasPrefix(w, "2>") {
			break
		}
		if strings.HasPrefix(w, "<") {
			w = "1" // a placeholder for a value
		}
		args = append(args, strings.Trim(w, `'"`))
	}
	if len(args) == 0 || args[0] == "completion" || args[0] == "--help" { // cobra's own
		return
	}
	root := cli.New(cli.Config{Name: "sandbox", Version: "test", Local: daemon.Commands(cli.Config{Version: "test"})})
	root.AddCommand(plansummary.NewCommand())
	command, rest, err := root.Find(args)
	if err != nil || command == root && !strings.HasPrefix(args[0], "-") {
		t.Errorf("%s: sandbox %s: there is no such command (%v)", file, line, err)
		return
	}
	if command.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		t.Errorf("%s: sandbox %s: %s has no command %s", file, line, command.CommandPath(), rest[0])
		return
	}
	command.FParseErrWhitelist = cobra.FParseErrWhitelist{}
	if err := command.ParseFlags(rest); err != nil {
		t.Errorf("%s: sandbox %s: %v", file, line, err)
	}
}
