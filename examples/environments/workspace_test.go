package environments_test

import (
	"context"
	"errors"
	"io"
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

// An agent without a network works on a private repository with the git of its image. Its commits leave the sandbox as
// a bundle and a diff, and the reconciler pushes them.
func TestAnAgentWorksOnAPrivateRepository(t *testing.T) {
	t.Parallel()
	long(t)
	const token = "token-that-no-sandbox-gets"
	image, err := base()
	must(t, err)
	server := gittest.New(t)
	repo := server.Repository("team/app.git", map[string]string{
		"README.md": "hello\n", "src/main.py": "print(1)\n", "link": "-> README.md", "out": "-> /etc/passwd",
	})
	server.Require(sandbox.DefaultGitUsername, token)
	w := providertest.New(t)
	r := w.ReconcilerOf(func(c *reconciler.Config) {
		c.Workspaces = reconciler.Workspaces{Allow: []string{server.URL}, Dir: t.TempDir()}
	})
	service, err := client.New(client.Config{URL: r.URL, Token: r.Token})
	must(t, err)
	_, err = service.PutEnvironment(t.Context(), sandbox.PutEnvironment{ID: w.Name, Owner: "test",
		SecretValues: map[string]sandbox.Secret{"git": token},
		EnvironmentSpec: sandbox.EnvironmentSpec{Image: image, Network: sandbox.NetworkNone,
			Workspace: &sandbox.Workspace{PushPrefix: "agents/", Git: &sandbox.GitSource{URL: repo.URL, Credential: "git"}},
			PostStart: []sandbox.PostStart{{Command: []string{"git", "-C", "/workspace/app", "fsck", "--strict"}}}}})
	must(t, err)
	t.Cleanup(func() {
		must(t, service.DeleteEnvironment(context.Background(), sandbox.DeleteEnvironment{ID: w.Name, Force: true}))
	})
	a, err := service.Acquire(t.Context(), sandbox.Acquire{AgentDID: "did:plc:ann", EnvironmentID: w.Name, Owner: "test"})
	must(t, err)
	ref := sandbox.LeaseRef{ID: a.Lease.ID}
	sh := func(script string) string {
		t.Helper()
		got, err := service.Exec(t.Context(), ref, sandbox.ExecRequest{Command: []string{"sh", "-ec", script},
			Cwd: "/workspace/app", Env: map[string]string{"GIT_AUTHOR_NAME": "Ann", "GIT_AUTHOR_EMAIL": "ann@example.com",
				"GIT_COMMITTER_NAME": "Ann", "GIT_COMMITTER_EMAIL": "ann@example.com"}})
		must(t, err)
		if got.ExitCode != 0 {
			t.Fatalf("%s: exit code %d\n%s\n%s", script, got.ExitCode, got.Stdout, got.Stderr)
		}
		return strings.TrimSpace(string(got.Stdout))
	}
	if got := sh("git status --porcelain --branch"); got != "## sandbox/did-plc-ann/1" {
		t.Errorf("git status says %q", got)
	}
	if got := sh("! grep -r " + token + " /workspace /data /run /etc /tmp /proc/self/environ 2>/dev/null && echo none"); got != "none" {
		t.Errorf("the sandbox has the token: %q", got)
	}
	tip := sh("echo 'print(2)' >src/main.py && git add --all && git commit --quiet --message work && git gc --quiet && " +
		"git rev-parse HEAD")
	collect := func(form sandbox.WorkspaceForm) []byte {
		stream, err := service.CollectWorkspace(t.Context(), ref, form)
		must(t, err)
		content, err := io.ReadAll(stream)
		must(t, errors.Join(err, stream.Close()))
		return content
	}
	if diff := string(collect(sandbox.WorkspaceDiff)); !strings.Contains(diff, "-print(1)\n+print(2)\n") {
		t.Errorf("the diff is\n%s", diff)
	}
	file := filepath.Join(t.TempDir(), "work.bundle")
	must(t, os.WriteFile(file, collect(sandbox.WorkspaceBundle), 0o600))
	gittest.Git(t, repo.Path, nil, "bundle", "verify", file)
	pushed, err := service.PushWorkspace(t.Context(), ref)
	must(t, err)
	if got := gittest.Git(t, repo.Path, nil, "rev-parse", "refs/heads/agents/sandbox/did-plc-ann/1"); got != tip ||
		pushed.Commit != tip {
		t.Errorf("pushed %+v, and the repository has %s, want %s", pushed, got, tip)
	}
}
