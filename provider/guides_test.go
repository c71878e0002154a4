package provider_test

import (
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
)

// Guides are run as they are written: the files that they show are put where they stand, their commands are run
// one after the other in one shell, and what they print of the output is there.
func TestAccGuidesAreTrue(t *testing.T) {
	t.Parallel()
	for _, guide := range []string{"getting-started", "cost-review", "ci", "upgrading", "from-docker-container", "http", "state",
		"backup", "README"} {
		t.Run(guide, func(t *testing.T) {
			t.Parallel()
			w := providertest.New(t)
			g := readGuide(t, guide)
			g.run(w)
		})
	}
}

// The workflow that the guide to CI shows runs what the guide runs.
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

// step is a file to put into the directory, or commands with what they print.
type step struct {
	file, commands string
	prints         []string
}

var (
	// part is what a guide consists of: a file that it shows, or a block of code in a language.
	part = regexp.MustCompile("(?ms)^\\{\\{ (?:tffile|codefile \"\\w+\") \"([^\"]+)\" \\}\\}$|^```(\\w+)\n(.*?)^```$")
)

func readGuide(t *testing.T, name string) guide {
	t.Helper()
	g := guide{name: name}
	file := "../templates/guides/" + name + ".md.tmpl"
	switch name {
	case "http", "state", "backup": // they show no files
		file = "../templates/guides/" + name + ".md"
	case "README":
		file = "../README.md"
	}
	for _, m := range part.FindAllStringSubmatch(read(t, file), -1) {
		switch file, language, code := m[1], m[2], m[3]; {
		case name == "README" && strings.Contains(code, "install"): // how to get the program
		case file != "":
			g.steps = append(g.steps, step{file: file})
		case language == "terraform" && name == "README":
			g.steps = append(g.steps, step{commands: "cat >main.tf <<'EOF'\n" + code + required + "EOF\n" +
				"terraform init\nterraform apply -auto-approve\n"})
		case language == "sh":
			g.steps = append(g.steps, step{commands: code})
		case language == "text" && len(g.steps) > 0:
			last := &g.steps[len(g.steps)-1]
			last.prints = append(last.prints, strings.Split(strings.TrimSpace(code), "\n")...)
		}
	}
	return g
}

// required is the part of a configuration that the README leaves out.
const required = `terraform {
  required_providers {
    sandbox = { source = "sandbox-lease/sandbox" }
  }
}
`

// asking are the guides whose commands ask a reconciler that they start themselves, with what removes the environments
// that they leave behind.
var asking = map[string]string{
	"http":   "",
	"backup": "",
	"state":  "sandbox env delete rpg-1\n",
	"README": "terraform destroy -auto-approve\nsandbox env delete catan-7\n",
}

// run runs the guide's commands as one script.
func (g guide) run(w *providertest.World) {
	w.Helper()
	path, err := program()
	w.Must(err)
	tf := providertest.NewMirroredCLI(w.TB, path)
	w.Watch(tf.LedgerURL())
	tf.Env = append(tf.Env, "TF_VAR_base="+w.Image, "TF_VAR_image="+w.Image)
	if g.name == "ci" {
		r := w.Reconciler()
		tf.Env = append(tf.Env, "SANDBOX_RECONCILER_URL="+r.URL, "SANDBOX_RECONCILER_TOKEN="+r.Token)
	}
	out, err := tf.Script(g.script(w))
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

// mark stands in the output before that of each step.
const mark = "\x01\n"

// script is the guide as a script. A reconciler of a guide gets a port of its own, and ends with the script.
func (g guide) script(w *providertest.World) string {
	w.Helper()
	root, err := filepath.Abs("..")
	w.Must(err)
	script := "trap 'test -z \"${!:-}\" || kill $! 2>/dev/null || true; wait' EXIT\n" +
		"TF_CLI_ARGS_plan=-no-color TF_CLI_ARGS_apply=-no-color TF_CLI_ARGS_destroy=-no-color\n" +
		"export TF_CLI_ARGS_plan TF_CLI_ARGS_apply TF_CLI_ARGS_destroy\n"
	for _, s := range g.steps {
		script += "printf '\\001\\n'\n"
		if s.file != "" {
			to, _ := strings.CutPrefix(s.file, "examples/guides/"+g.name+"/")
			script += fmt.Sprintf("mkdir -p '%s' && cp '%s' '%s'\n", filepath.Dir(to), filepath.Join(root, s.file), to)
		}
		script += s.commands
	}
	if end, ok := asking[g.name]; ok {
		script = requesting(script+end, w.Image, root)
	}
	return strings.ReplaceAll(script, defaultAddress, freeAddress(w))
}

// defaultAddress is where a reconciler listens by default.
const defaultAddress = "127.0.0.1:8787"

// requesting is a guide of requests as a script: with an image of this engine, and the state where a test has it. A request
// that is refused fails the script. One that follows something for ever is interrupted.
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
	).Replace(strings.Join(lines, ""))
}

// freeAddress is one on which nothing listens.
func freeAddress(w *providertest.World) string {
	w.Helper()
	l, err := (&net.ListenConfig{}).Listen(w.Context(), "tcp", "127.0.0.1:0")
	w.Must(err)
	w.Must(l.Close())
	return l.Addr().String()
}

// printed matches a line that a guide shows, in which … stands for whatever is there.
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
