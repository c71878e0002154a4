package cli_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
)

// TestHelpFits: the first screen fits a terminal of 24 lines and 80 columns, and all other help one of 100 columns.
func TestHelpFits(t *testing.T) {
	t.Parallel()
	first := run(t.Context(), "", "--help").out
	if n := strings.Count(first, "\n"); n > 23 { // the prompt needs one line
		t.Errorf("the first screen has %d lines:\n%s", n, first)
	}
	checkWidth(t, "the first screen", first, 80)
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, below := range cmd.Commands() {
			visit(below)
		}
		if cmd.HasParent() && cmd.IsAvailableCommand() {
			words := strings.Fields(cmd.CommandPath())
			checkWidth(t, cmd.CommandPath(), run(t.Context(), "", append(words[1:], "--help")...).out, 100)
		}
	}
	visit(commandLine(cli.Config{}))
}

func checkWidth(t *testing.T, name, text string, most int) {
	t.Helper()
	if text == "" {
		t.Errorf("%s has no help", name)
	}
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(line) - 1; n > most {
			t.Errorf("%s has a line of %d columns: %s", name, n, line)
		}
	}
}

func TestHelpHasTheNameThatTheProgramWasCalledBy(t *testing.T) {
	t.Parallel()
	w := &world{T: t}
	as := func(args ...string) result {
		return runWith(t.Context(), cli.Config{Name: "sbl", Getenv: noHome}, "", args...)
	}
	w.want(as(), exit.Done, "Usage: sbl <command>")
	for _, args := range [][]string{
		{"lease", "create", "--help"}, {"file", "download", "--help"}, {"run", "--help"}, {"restore", "--help"},
		{"serve", "--help"}, {"plan-summary", "--help"}, {"token", "--help"}, {"workspace", "bundle", "--help"},
	} {
		r := as(args...)
		w.want(r, exit.Done, "sbl "+args[0])
		for _, wrong := range []string{"sandbox " + args[0] + " ", `"sandbox `, "reconciler " + args[0], "terraform-provider-sandbox "} {
			if strings.Contains(r.out, wrong) {
				t.Errorf("the help of %v has %q:\n%s", args, wrong, r.out)
			}
		}
	}
	w.want(as("lease", "list"), exit.Usage, "run sbl login")
	w.want(as("leases", "nothing"), exit.Usage, "leases is the old form: use sbl lease list")
	w.want(as("envv"), exit.Usage, "did you mean env?")
	w.want(as("token", "crate"), exit.Usage, "did you mean create?")
	w.want(as("context", "lsit"), exit.Usage, "did you mean list?")
}
