package harness

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Terraform runs the Terraform CLI with the local build of the provider.
type Terraform struct {
	// Dir holds the configuration and its state; State holds everything else. Both are absolute.
	Dir, State string
	// Variables are the values of the configuration's variables.
	Variables map[string]string
}

// Install puts the built provider into a mirror that only this Terraform uses. So neither the registry nor the user's
// settings matter.
func (t Terraform) Install(binary string) error { return t.InstallAs("sandbox-lease/sandbox", binary) }

// InstallAs is Install for a provider with another namespace and name.
func (t Terraform) InstallAs(source, binary string) error {
	const version = "0.1.0"
	mirror := filepath.Join(t.State, "plugins")
	dir := filepath.Join(mirror, "registry.terraform.io", source, version, runtime.GOOS+"_"+runtime.GOARCH)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	link := filepath.Join(dir, "terraform-provider-"+path.Base(source)+"_v"+version)
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(binary, link); err != nil {
		return err
	}
	// The lock file of an earlier build has another checksum for the same version.
	if err := os.Remove(filepath.Join(t.Dir, ".terraform.lock.hcl")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	config := fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", mirror)
	return os.WriteFile(t.config(), []byte(config), 0o600)
}

func (t Terraform) config() string { return filepath.Join(t.State, "terraformrc") }

// Run runs a command of Terraform against a reconciler and returns its standard output.
func (t Terraform) Run(ctx context.Context, r *Reconciler, args ...string) (string, error) {
	cmd := Command(ctx, "terraform", append([]string{"-chdir=" + t.Dir}, args...)...)
	for _, v := range os.Environ() {
		// Drop the user's settings of Terraform and of other provider blocks.
		if !strings.HasPrefix(v, "TF_") && !strings.HasPrefix(v, "SANDBOX_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env,
		"TF_CLI_CONFIG_FILE="+t.config(),
		"TF_DATA_DIR="+filepath.Join(t.State, "terraform"),
		"TF_IN_AUTOMATION=1",
		"CHECKPOINT_DISABLE=1",
		"SANDBOX_RECONCILER_URL="+r.URL,
		"SANDBOX_RECONCILER_TOKEN="+r.Token)
	for name, value := range t.Variables {
		cmd.Env = append(cmd.Env, "TF_VAR_"+name+"="+value)
	}
	return Collect(cmd)
}

// Forget deletes Terraform's files beside the configuration, including the state.
func (t Terraform) Forget() error {
	var all error
	for _, name := range []string{"terraform.tfstate", "terraform.tfstate.backup", ".terraform.lock.hcl"} {
		if err := os.Remove(filepath.Join(t.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			all = errors.Join(all, err)
		}
	}
	return all
}

// Applied reports whether there is a state, and so something to destroy.
func (t Terraform) Applied() bool {
	_, err := os.Stat(filepath.Join(t.Dir, "terraform.tfstate"))
	return err == nil
}

// Plan is the planned changes of `terraform plan`, and its warnings.
type Plan struct {
	Changes  []Change
	Warnings []Diagnostic
	// Summary is Terraform's own line, "Plan: 1 to add, ...".
	Summary string
}

// Change is a planned change of one resource.
type Change struct {
	Address string `json:"address"`
	Type    string `json:"type"`
	Change  struct {
		Actions []string        `json:"actions"`
		Before  json.RawMessage `json:"before"`
		After   json.RawMessage `json:"after"`
	} `json:"change"`
}

// Diagnostic is a warning or an error that Terraform printed.
type Diagnostic struct {
	Severity string `json:"severity"`
	Summary  string `json:"summary"`
	Detail   string `json:"detail"`
	Address  string `json:"address"`
}

// Plan runs `terraform plan`. It fails on an error of Terraform, not on changes.
func (t Terraform) Plan(ctx context.Context, r *Reconciler) (Plan, error) {
	file := filepath.Join(t.State, "plan")
	stream, err := t.Run(ctx, r, "plan", "-input=false", "-json", "-detailed-exitcode", "-out="+file)
	if code := ExitCode(err); code != 0 && code != 2 { // 2: there are changes
		return Plan{}, err
	}
	p, err := readStream(stream)
	if err != nil {
		return Plan{}, err
	}
	shown, err := t.Run(ctx, r, "show", "-json", file)
	if err != nil {
		return Plan{}, err
	}
	var document struct {
		Changes []Change `json:"resource_changes"`
	}
	if err := json.Unmarshal([]byte(shown), &document); err != nil {
		return Plan{}, fmt.Errorf("read terraform show -json: %w", err)
	}
	p.Changes = document.Changes
	return p, nil
}

// readStream extracts warnings and summary from the lines of `terraform plan -json`.
func readStream(stream string) (Plan, error) {
	var p Plan
	lines := bufio.NewScanner(strings.NewReader(stream))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var message struct {
			Type       string     `json:"type"`
			Message    string     `json:"@message"`
			Diagnostic Diagnostic `json:"diagnostic"`
		}
		if err := json.Unmarshal(lines.Bytes(), &message); err != nil {
			return Plan{}, fmt.Errorf("read terraform plan -json: %w", err)
		}
		switch message.Type {
		case "diagnostic":
			p.Warnings = append(p.Warnings, message.Diagnostic)
		case "change_summary":
			p.Summary = message.Message
		}
	}
	return p, lines.Err()
}

// Effective returns the changes without no-ops and reads.
func (p Plan) Effective() []Change {
	return slices.DeleteFunc(slices.Clone(p.Changes), func(c Change) bool {
		return slices.Equal(c.Change.Actions, []string{"no-op"}) || slices.Equal(c.Change.Actions, []string{"read"})
	})
}
