package providertest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

const module = "github.com/sandbox-lease/terraform-provider-sandbox"

// Build builds the provider's program into a directory, as make build does, and returns its path.
func Build(dir string) (string, error) { return build(dir, module) }

// BuildIdle builds, under the same name, a provider whose resource bare_lease has the schema of sandbox_lease but does
// nothing.
func BuildIdle(dir string) (string, error) { return build(dir, module+"/scripts/bench/bareprovider") }

func build(dir, program string) (string, error) {
	path := filepath.Join(dir, "terraform-provider-sandbox")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, program)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", program, err, out)
	}
	return path, nil
}

// CLI runs the Terraform CLI in its own directory, with a built provider.
type CLI struct {
	testing.TB
	// Dir holds the configuration.
	Dir string
	// Env has additional environment variables, "name=value".
	Env []string
}

// NewCLI creates a directory with a configuration, and adds the provider's source. The embedded ledger is also in the
// directory, unless the configuration sets another.
func NewCLI(t testing.TB, program, configuration string) *CLI {
	t.Helper()
	c := &CLI{TB: t, Dir: t.TempDir()}
	c.Write("main.tf", configuration)
	c.Write("versions.tf",
		"terraform {\n  required_providers {\n    sandbox = {\n      source = \"sandbox-lease/sandbox\"\n    }\n  }\n}\n")
	rc := c.Write("terraform.rc",
		fmt.Sprintf("provider_installation {\n  dev_overrides {\n    \"sandbox-lease/sandbox\" = %q\n  }\n  direct {}\n}\n",
			filepath.Dir(program)))
	c.Env = []string{"TF_CLI_CONFIG_FILE=" + rc, "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "XDG_STATE_HOME=" + c.Dir}
	return c
}

// NewMirroredCLI creates an empty directory for a configuration that names the provider's source itself. A mirror has
// the provider, so terraform init installs it. Scripts find the program on the PATH.
func NewMirroredCLI(t testing.TB, program string) *CLI {
	t.Helper()
	c := &CLI{TB: t, Dir: t.TempDir()}
	home := t.TempDir()
	mirror, bin := filepath.Join(home, "plugins"), filepath.Join(home, "bin")
	links := map[string]string{
		filepath.Join(bin, "terraform-provider-sandbox"): program, filepath.Join(bin, "sandbox"): program,
	}
	for _, registry := range []string{"registry.terraform.io", "registry.opentofu.org"} {
		links[filepath.Join(mirror, registry, "sandbox-lease/sandbox/0.1.0", runtime.GOOS+"_"+runtime.GOARCH,
			"terraform-provider-sandbox_v0.1.0")] = program
	}
	for link, to := range links {
		if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(to, link)); err != nil {
			t.Fatal(err)
		}
	}
	rc := filepath.Join(home, "terraform.rc")
	if err := os.WriteFile(rc, fmt.Appendf(nil, "provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n",
		mirror), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Env = []string{
		"TF_CLI_CONFIG_FILE=" + rc, "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "TF_INPUT=0", "XDG_STATE_HOME=" + c.Dir,
		"TERRAFORM_PROVIDER=" + program, "PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"),
	}
	return c
}

// Script runs a shell script in the directory, and returns its output. Background processes must end with the script.
func (c *CLI) Script(script string) (string, error) {
	c.Helper()
	return c.output(exec.CommandContext(c.Context(), "sh",
		"-euc", "terraform() { command '"+terraformProgram()+"' \"$@\"; }\n"+script))
}

// LedgerURL is the URL of the default ledger.
func (c *CLI) LedgerURL() string {
	return "sqlite://" + filepath.Join(c.Dir, "terraform-provider-sandbox", "ledger.db")
}

// Write writes a file into the directory and returns its path.
func (c *CLI) Write(name, content string) string {
	c.Helper()
	path := filepath.Join(c.Dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
		c.Fatal(err)
	}
	return path
}

// Read returns a file of the directory.
func (c *CLI) Read(name string) string {
	c.Helper()
	text, err := os.ReadFile(filepath.Join(c.Dir, name))
	if err != nil {
		c.Fatal(err)
	}
	return string(text)
}

// Run runs Terraform and returns its output. Exit codes of plan other than 1 are success.
func (c *CLI) Run(args ...string) string {
	c.Helper()
	out, err := c.run(args...)
	if err != nil {
		c.Fatalf("terraform %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// Fail runs Terraform, which must fail, and returns its output.
func (c *CLI) Fail(args ...string) string {
	c.Helper()
	out, err := c.run(args...)
	if err == nil {
		c.Fatalf("terraform %s did not fail:\n%s", strings.Join(args, " "), out)
	}
	return out
}

func (c *CLI) run(args ...string) (string, error) {
	out, err := c.output(exec.CommandContext(c.Context(), terraformProgram(), args...))
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 2 { // plan -detailed-exitcode found changes
		err = nil
	}
	return out, err
}

// output runs a command in the directory and returns its standard output and error together.
func (c *CLI) output(cmd *exec.Cmd) (string, error) {
	cmd.Dir, cmd.Env = c.Dir, append(os.Environ(), c.Env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// terraformProgram is the CLI that the tests run.
func terraformProgram() string { return cmp.Or(os.Getenv("TF_ACC_TERRAFORM_PATH"), "terraform") }

// Diagnostic is an error or warning of a plan.
type Diagnostic struct {
	Severity string `json:"severity"`
	Summary  string `json:"summary"`
	Detail   string `json:"detail"`
	Address  string `json:"address"`
}

// Plan is the output of terraform plan -json.
type Plan struct {
	Diagnostics []Diagnostic
	// Changes are the planned actions by address.
	Changes map[string]string
}

// Plan runs terraform plan, which must succeed. It omits the warning about dev_overrides.
func (c *CLI) Plan() Plan {
	c.Helper()
	p := Plan{Changes: map[string]string{}}
	for line := range strings.Lines(c.Run("plan", "-json", "-input=false")) {
		var m struct {
			Type       string     `json:"type"`
			Diagnostic Diagnostic `json:"diagnostic"`
			Change     struct {
				Resource struct {
					Addr string `json:"addr"`
				} `json:"resource"`
				Action string `json:"action"`
			} `json:"change"`
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			c.Fatalf("plan -json printed %q: %v", line, err)
		}
		switch {
		case m.Type == "diagnostic" && !strings.Contains(m.Diagnostic.Summary, "development overrides"):
			p.Diagnostics = append(p.Diagnostics, m.Diagnostic)
		case m.Type == "planned_change":
			p.Changes[m.Change.Resource.Addr] = m.Change.Action
		}
	}
	return p
}

// Warning returns the only warning with a summary.
func (p Plan) Warning(t testing.TB, summary string) Diagnostic {
	t.Helper()
	var found []Diagnostic
	for _, d := range p.Diagnostics {
		if d.Severity == "warning" && d.Summary == summary {
			found = append(found, d)
		}
	}
	if len(found) != 1 {
		t.Fatalf("want one warning %q, got %d; all: %+v", summary, len(found), p.Diagnostics)
	}
	return found[0]
}
