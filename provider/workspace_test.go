package provider_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gittest"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// The example with a workspace is applied through a reconciler that allows its host. An agent finds the repository.
func TestAccExampleOfAWorkspace(t *testing.T) {
	t.Parallel()
	const token = "token-that-no-sandbox-gets"
	server := gittest.New(t)
	repo := server.Repository("team/app.git", map[string]string{
		"README.md": "hello", "bin/run": "#!/bin/sh\necho ran", "link": "-> README.md", "out": "-> /etc/passwd",
		"näme with ünicode": "(unicode)",
	})
	server.Require(sandbox.DefaultGitUsername, token)
	w := providertest.New(t)
	r := w.ReconcilerOf(func(c *reconciler.Config) {
		c.Workspaces = reconciler.Workspaces{Allow: []string{server.URL}, Dir: t.TempDir()}
	})
	example := strings.NewReplacer("https://git.example.com/team/app.git", repo.URL,
		"sandbox_container_image.player.reference", fmt.Sprintf("%q", w.Image), `"coding-fix"`, fmt.Sprintf("%q", w.Name)).
		Replace(read(t, "../examples/resources/sandbox_environment/resource-workspace.tf"))
	tf := terraform(t, r.Configuration+example)
	tf.Env = append(tf.Env, "TF_VAR_repository_token="+token)
	tf.Run("apply", "-auto-approve", "-input=false")
	if p := tf.Plan(); len(p.Changes) > 0 {
		t.Errorf("the second plan is %v", p.Changes)
	}
	if state := tf.Read("terraform.tfstate"); strings.Contains(state, token) {
		t.Error("the state has the token")
	}
	service, err := client.New(client.Config{URL: r.URL, Token: r.Token})
	w.Must(err)
	a, err := service.Acquire(t.Context(), sandbox.Acquire{AgentDID: "did:plc:ann", EnvironmentID: w.Name, Owner: "test"})
	if err != nil {
		tf.Run("destroy", "-auto-approve", "-input=false")
		t.Fatal(err)
	}
	got, err := service.Exec(t.Context(), sandbox.LeaseRef{ID: a.Lease.ID}, sandbox.ExecRequest{Command: []string{"sh", "-c",
		"cd /workspace/app && cat README.md link && cat .git/HEAD .git/refs/heads/agents/did-plc-ann/1 && ls -ld README.md && " +
			"ls -A . && cat n*e && ! ls /run/secrets/repository_token && ! grep -r " + token + " /workspace /data /proc/self/environ"}})
	w.Must(err)
	if got.ExitCode != 0 || !strings.HasPrefix(string(got.Stdout), "hellohello") ||
		!strings.Contains(string(got.Stdout), "ref: refs/heads/agents/did-plc-ann/1\n") ||
		strings.Contains(string(got.Stdout), "\nout\n") || !strings.Contains(string(got.Stdout), "(unicode)") {
		t.Errorf("exit code %d\n%s\n%s", got.ExitCode, got.Stdout, got.Stderr)
	}
	_, err = service.Release(t.Context(), sandbox.LeaseRef{ID: a.Lease.ID})
	w.Must(err)
	tf.Run("destroy", "-auto-approve", "-input=false")
}

// A worktree of this machine is the source of a workspace, if the operator allows its directory. The agent gets its
// commits, but neither uncommitted changes nor the repository's configuration. The repository is unchanged.
func TestAccAWorkspaceFromTheHost(t *testing.T) {
	t.Parallel()
	const marker = "marker-that-no-sandbox-gets"
	dir, secret := t.TempDir(), t.TempDir()
	repository, worktree := filepath.Join(dir, "app"), filepath.Join(dir, "fix")
	git := func(in string, args ...string) string { return gittest.Git(t, in, nil, args...) }
	git("", "init", "--quiet", "--initial-branch=main", repository)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(repository, "README.md"), "hello\n")
	git(repository, "add", ".")
	git(repository, "commit", "--quiet", "-m", "begin")
	git(repository, "config", "http.extraHeader", "Authorization: "+marker)
	git(repository, "worktree", "add", "--quiet", "-b", "fix", worktree)
	write(filepath.Join(worktree, "notes.txt"), marker)
	before := git(repository, "for-each-ref") + git(repository, "count-objects", "-v")

	w := providertest.New(t)
	r := w.ReconcilerOf(func(c *reconciler.Config) {
		c.Host.Directories = []string{dir}
		c.Workspaces.Dir = t.TempDir()
	})
	environment := func(url string) string {
		return fmt.Sprintf(`%s
			resource "sandbox_environment" "coding" {
				name      = %q
				type      = "coding"
				image     = %q
				network   = { mode = "none" }
				workspace = { git = { url = %q }, path = "/workspace/app" }
			}`, r.Configuration, w.Name, w.Image, url)
	}
	refused := terraform(t, environment("file://"+secret))
	if out := refused.Fail("apply", "-auto-approve", "-input=false"); !strings.Contains(out, "workspace.git.url") ||
		!strings.Contains(out, "--mount-allow") {
		t.Errorf("a directory that is not allowed is refused with\n%s", out)
	}
	tf := terraform(t, environment("file://"+worktree))
	tf.Run("apply", "-auto-approve", "-input=false")
	defer tf.Run("destroy", "-auto-approve", "-input=false")
	service, err := client.New(client.Config{URL: r.URL, Token: r.Token})
	w.Must(err)
	a, err := service.Acquire(t.Context(), sandbox.Acquire{AgentDID: "did:plc:ann", EnvironmentID: w.Name, Owner: "test"})
	if err != nil {
		t.Fatal(err)
	}
	ref := sandbox.LeaseRef{ID: a.Lease.ID}
	got, err := service.Exec(t.Context(), ref, sandbox.ExecRequest{Command: []string{"sh", "-c",
		"cd /workspace/app && cat README.md .git/HEAD && ls -A && ! grep -r " + marker + " /workspace && ! grep -r " + dir + " ."}})
	w.Must(err)
	if got.ExitCode != 0 || string(got.Stdout) != "hello\nref: refs/heads/sandbox/did-plc-ann/1\n.git\nREADME.md\n" {
		t.Errorf("exit code %d\n%s\n%s", got.ExitCode, got.Stdout, got.Stderr)
	}
	_, err = service.Release(t.Context(), ref)
	w.Must(err)
	if after := git(repository, "for-each-ref") + git(repository, "count-objects", "-v"); after != before {
		t.Errorf("the repository was\n%s\nand is\n%s", before, after)
	}
}
