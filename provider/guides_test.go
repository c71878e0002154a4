package provider_test

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testaddress"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The test runs guides as written. It puts the files that they show in place, runs their commands one after the other
// in one shell, and compares the output with what they print.
func TestAccGuidesAreTrue(t *testing.T) {
	t.Parallel()
	for name, s := range stages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := providertest.New(t)
			readGuide(t, name).run(w, s)
		})
	}
}

// The workflow in the guide to CI runs what the guide runs.
func TestTheWorkflowRunsWhatItsGuideRuns(t *testing.T) {
	t.Parallel()
	guide, seen := read(t, "../templates/guides/ci.md.tmpl"), 0
	for line := range strings.Lines(read(t, "../examples/guides/ci/plan.yaml")) {
		command := strings.TrimPrefix(strings.TrimSpace(line), "- run: ")
		if strings.HasPrefix(command, "terraform ") || strings.HasPrefix(command, "provider=") {
			if seen++; !strings.Contains(guide, "\n"+command+"\n") {
				t.Errorf("the guide does not run %s", command)
			}
		}
	}
	if seen != 4 {
		t.Errorf("%d commands of the workflow were looked at", seen)
	}
}

// guide is a page whose commands are run.
type guide struct {
	name  string
	steps []step
}

// step is a file to write into the directory, or commands with their expected output.
type step struct {
	file, commands string
	prints         []string
}

var (
	// part matches the parts of a guide: a file that it shows, or a code block in a language.
	part = regexp.MustCompile("(?ms)^\\{\\{ (?:tffile|codefile \"\\w+\") \"([^\"]+)\" \\}\\}$|^ *```(\\w+)\n(.*?)^ *```$")
)

func readGuide(t *testing.T, name string) guide {
	t.Helper()
	g := guide{name: name}
	for _, m := range part.FindAllStringSubmatch(readPage(t, name), -1) {
		file, language, code := m[1], m[2], m[3]
		first, _, _ := strings.Cut(strings.TrimSpace(code), "\n")
		switch {
		case elsewhere[name+": "+first] != "":
		case file != "":
			g.steps = append(g.steps, step{file: file})
		case language == "terraform" && name == "README":
			g.steps = append(g.steps, step{commands: "cat >main.tf <<'EOF'\n" + code + required + "EOF\n" +
				"terraform init\nterraform apply -auto-approve\n"})
		case language == "sh":
			g.steps = append(g.steps, step{commands: code})
		case (language == "text" || language == "json" && strings.HasPrefix(code, "{")) && len(g.steps) > 0:
			last := &g.steps[len(g.steps)-1]
			last.prints = append(last.prints, strings.Split(strings.TrimSpace(code), "\n")...)
		}
	}
	return g
}

// readPage returns a guide, or the README.
func readPage(t *testing.T, name string) string {
	t.Helper()
	if name == "README" {
		return read(t, "../README.md")
	}
	found, err := filepath.Glob("../templates/guides/" + name + ".md*")
	if err != nil || len(found) != 1 {
		t.Fatalf("the guide %s is %v, %v", name, found, err)
	}
	return read(t, found[0])
}

// required is the part of a configuration that the README omits.
const required = `terraform {
  required_providers {
    sandbox = { source = "sandbox-lease/sandbox" }
  }
}
`

// run runs the guide's commands as one script.
func (g guide) run(w *providertest.World, s stage) {
	w.Helper()
	path, err := program()
	w.Must(err)
	tf := providertest.NewMirroredCLI(w.TB, path)
	w.Watch(tf.LedgerURL())
	tf.Env = append(tf.Env, "TF_VAR_base="+w.Image, "TF_VAR_image="+w.Image)
	if s.reconciler {
		tf.Env = append(tf.Env, serve(w, s.around)...)
	}
	out, err := tf.Script(g.script(w, s))
	if err != nil {
		w.Fatalf("%s: %v\n%s", g.name, err, out)
	}
	said := strings.Split(out, mark)
	if len(said) != len(g.steps)+1 {
		w.Fatalf("%s printed %d parts for %d steps:\n%s", g.name, len(said)-1, len(g.steps), out)
	}
	for i, s := range g.steps {
		missing := slices.DeleteFunc(s.prints, func(line string) bool { return printed(line).MatchString(said[i+1]) })
		if len(missing) > 0 {
			w.Errorf("%s says that\n%sprints\n%s\nand it prints\n%s", g.name, s.commands, strings.Join(missing, "\n"), said[i+1])
		}
	}
}

// serve starts a reconciler and returns the variables with which commands reach it. It removes what a guide leaves
// there at the end.
func serve(w *providertest.World, around func(*providertest.World, *reconciler.Config) []string) (env []string) {
	w.Helper()
	r := w.ReconcilerOf(func(c *reconciler.Config) {
		if around != nil {
			env = around(w, c)
		}
	})
	service, err := client.New(client.Config{URL: r.URL, Token: r.Token})
	w.Must(err)
	w.Cleanup(func() {
		environments, err := service.ListEnvironments(context.Background())
		w.Must(err)
		for _, e := range environments {
			w.Must(service.DeleteEnvironment(context.Background(), sandbox.DeleteEnvironment{ID: e.ID, Force: true}))
		}
	})
	return append(env, "SANDBOX_RECONCILER_URL="+r.URL, "SANDBOX_RECONCILER_TOKEN="+r.Token, "SECRETS="+r.SecretFile)
}

// mark comes before the output of each step.
const mark = "\x01\n"

// script returns the guide as a script. A guide's reconciler gets its own port, and ends with the script.
func (g guide) script(w *providertest.World, s stage) string {
	w.Helper()
	root, err := filepath.Abs("..")
	w.Must(err)
	script := "trap 'test -z \"${!:-}\" || kill $! 2>/dev/null || true; wait' EXIT\n" +
		"TF_CLI_ARGS_plan=-no-color TF_CLI_ARGS_apply=-no-color TF_CLI_ARGS_destroy=-no-color\n" +
		"export TF_CLI_ARGS_plan TF_CLI_ARGS_apply TF_CLI_ARGS_destroy\n" + s.before
	for _, s := range g.steps {
		script += "printf '\\001\\n'\n"
		if s.file != "" {
			to, own := strings.CutPrefix(s.file, "examples/guides/"+g.name+"/")
			if !own {
				to = filepath.Base(s.file)
			}
			script += fmt.Sprintf("mkdir -p '%s' && cp '%s' '%s'\n", filepath.Dir(to), filepath.Join(root, s.file), to)
		}
		script += s.commands
	}
	return strings.ReplaceAll(requesting(script+s.after, w.Image, root), defaultAddress, freeAddress(w))
}

// defaultAddress is the default listen address of a reconciler.
const defaultAddress = "127.0.0.1:8787"

// requesting adapts a guide's script to a test: it uses an image of this engine, and paths below the test's root. A
// refused request fails the script. A command that follows something forever is interrupted.
func requesting(script, image, root string) string {
	const endless = "# follows until Ctrl-C"
	var lines []string
	for line := range strings.Lines(script) {
		if before, ok := strings.CutSuffix(strings.TrimSpace(line), endless); ok {
			line = "timeout 2 " + before + " || test $? = 124\n"
		}
		lines = append(lines, line)
	}
	return strings.NewReplacer(
		" serve ", " serve --listen "+defaultAddress+" ",
		"curl -sS", "curl --fail-with-body -sS",
		`"image": "busybox"`, `"image": "`+image+`"`,
		"--image busybox", "--image "+image,
		`image      = "busybox"`, `image = "`+image+`"`,
		"examples/quickstart/", root+"/examples/quickstart/",
		"~/.local/state", "$XDG_STATE_HOME",
		"/etc/sandbox/", "$XDG_STATE_HOME/",
		"/var/lib/sandbox/", "$XDG_STATE_HOME/",
	).Replace(strings.Join(lines, ""))
}

func freeAddress(w *providertest.World) string {
	w.Helper()
	address, err := testaddress.Free()
	w.Must(err)
	return address
}

// printed matches a line that a guide shows. In it, … matches anything.
func printed(line string) *regexp.Regexp {
	words := strings.Fields(line)
	for i, word := range words {
		words[i] = strings.ReplaceAll(regexp.QuoteMeta(word), "…", `\S*`)
		if word == "…" {
			words[i] = ".*"
		}
	}
	return regexp.MustCompile("(?s)" + strings.Join(words, `[\s│]+`))
}
