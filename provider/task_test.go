package provider_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gittest"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/providertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// One apply sets up a coding task: an image from the project's devcontainer.json, its private repository, and a
// database beside each sandbox for its tests. The agent's branch is pushed, no sandbox contains the credential, and the
// bill covers everything.
func TestAWholeCodingTaskWithOneApply(t *testing.T) {
	t.Parallel()
	if os.Getenv("SANDBOX_TEST_LONG") == "" {
		t.Skip("set SANDBOX_TEST_LONG=1: it makes an image of Debian with PostgreSQL")
	}
	for name, connect := range map[string]func(t *testing.T, s *gittest.Server, r gittest.Repository) taskSource{
		"https with a token": func(_ *testing.T, s *gittest.Server, r gittest.Repository) taskSource {
			const token = "token-that-no-sandbox-gets"
			s.Require(sandbox.DefaultGitUsername, token)
			return taskSource{url: r.URL, allow: s.URL, secret: token, mark: token}
		},
		"ssh": func(t *testing.T, _ *gittest.Server, r gittest.Repository) taskSource {
			server := gittest.NewSSH(t)
			return taskSource{url: server.URL(r.Path), allow: "ssh://" + server.Host, secret: server.Key, knownHosts: server.KnownHosts,
				mark: strings.Split(server.Key, "\n")[2]}
		},
	} {
		t.Run(name, func(t *testing.T) { wholeTask(t, connect) })
	}
}

// taskSource locates a task's repository. mark is a part of the secret that occurs nowhere else.
type taskSource struct{ url, allow, secret, knownHosts, mark string }

func wholeTask(t *testing.T, connect func(t *testing.T, s *gittest.Server, r gittest.Repository) taskSource) {
	const password = "password-of-the-database"
	base, err := exec.CommandContext(t.Context(), "../scripts/debian-base", "task", "git", "python3", "postgresql").Output()
	if err != nil {
		t.Fatalf("scripts/debian-base: %v", err)
	}
	server := gittest.New(t)
	repo := server.Repository("team/scores.git", map[string]string{
		"scores.sql": "CREATE TABLE scores (player text, points int);\n",
		"test.sh": "#!/bin/sh\nset -e\nPGPASSWORD=$(cat /run/secrets/database_password) psql -qtA -h 127.0.0.1 -U postgres " +
			"-v ON_ERROR_STOP=1 -f scores.sql -c \"INSERT INTO scores VALUES ('ada', 7), ('bob', -1)\" " +
			"-c 'SELECT sum(points) FROM scores'\n",
	})
	source := connect(t, server, repo)
	w := providertest.New(t)
	r := w.ReconcilerOf(func(c *reconciler.Config) {
		c.Workspaces = reconciler.Workspaces{Allow: []string{source.allow}, Dir: t.TempDir()}
	})
	project := t.TempDir()
	feature := filepath.Join(project, ".devcontainer/postgres")
	w.Must(os.MkdirAll(feature, 0o755))
	for name, text := range map[string]string{
		filepath.Join(project, ".devcontainer/devcontainer.json"): `{
			"image": "` + strings.TrimSpace(string(base)) + `", "features": {"./postgres": {}},
			"postCreateCommand": "git config --global user.name Ada && git config --global user.email ada@example.com"
		}`,
		filepath.Join(feature, "devcontainer-feature.json"): `{"id": "postgres"}`,
		// PostgreSQL's programs are in the directory where Debian keeps them for its own scripts.
		filepath.Join(feature, "install.sh"): "#!/bin/sh\nset -e\nln -s /usr/lib/postgresql/*/bin/* /usr/local/bin/\n",
	} {
		w.Must(os.WriteFile(name, []byte(text), 0o600))
	}
	tf := terraform(t, r.Configuration+fmt.Sprintf(`
variable "token" {
  type      = string
  ephemeral = true
}

variable "password" {
  type      = string
  ephemeral = true
}

resource "sandbox_container_image" "project" {
  name = %[1]q
  build = {
    context      = %[2]q
    devcontainer = ".devcontainer/devcontainer.json"
  }
}

resource "sandbox_environment" "task" {
  name       = %[1]q
  type       = "coding"
  image      = sandbox_container_image.project.reference
  post_start = sandbox_container_image.project.post_start
  labels     = { task = "scores" }

  network = {
    mode = "none"
  }

  secrets = {
    token             = { value_wo = var.token, value_wo_version = 1 }
    database_password = { value_wo = var.password, value_wo_version = 1 }
  }

  workspace = {
    git = {
      url               = %[3]q
      credential_secret = "token"
      known_hosts       = %[4]s
    }
    push_prefix = "agents/"
  }

  companions = {
    db = {
      image = sandbox_container_image.project.reference
      command = ["sh", "-ec", <<-EOT
        initdb -D /data/db -U postgres --auth=scram-sha-256 --pwfile=/run/secrets/database_password
        exec postgres -D /data/db -k /tmp -c listen_addresses=127.0.0.1
      EOT
      ]
      secrets      = ["database_password"]
      health_check = { command = ["pg_isready", "-h", "127.0.0.1"], start_period = "3m" }
    }
  }
}

resource "sandbox_lease" "ada" {
  agent_did      = "did:plc:ada"
  environment_id = sandbox_environment.task.name
}
`, w.Name, project, source.url, quotedOrNull(source.knownHosts)))
	tf.Env = append(tf.Env, "TF_VAR_token="+source.secret, "TF_VAR_password="+password)
	tf.Run("apply", "-auto-approve", "-input=false")
	if p := tf.Plan(); len(p.Changes) > 0 {
		t.Errorf("the second plan is %v", p.Changes)
	}
	if state := tf.Read("terraform.tfstate"); strings.Contains(state, source.mark) || strings.Contains(state, password) {
		t.Error("the state has a secret")
	}

	service, err := client.New(client.Config{URL: r.URL, Token: r.Token})
	w.Must(err)
	ref := sandbox.LeaseRef{ID: sandbox.LeaseID("did:plc:ada", w.Name)}
	sh := func(script string) string {
		t.Helper()
		got, err := service.Exec(t.Context(), ref, sandbox.ExecRequest{
			Command: []string{"sh", "-ec", script}, Cwd: "/workspace/scores",
		})
		w.Must(err)
		if got.ExitCode != 0 {
			t.Fatalf("%s: exit code %d\n%s\n%s", script, got.ExitCode, got.Stdout, got.Stderr)
		}
		return strings.TrimSpace(string(got.Stdout))
	}
	if got := sh("sh test.sh"); got != "6" {
		t.Errorf("the first test of the project says %q", got)
	}
	// The agent forbids negative points. The database shows it that the test then fails.
	sh("sed -i 's/points int/points int CHECK (points >= 0)/; 1i DROP TABLE IF EXISTS scores;' scores.sql && " +
		"! sh test.sh 2>/dev/null && sed -i 's/-1/1/' test.sh")
	if got := sh("sh test.sh"); got != "8" {
		t.Errorf("the last test of the project says %q", got)
	}
	tip := sh("git commit --quiet --all --message 'No points below zero' && git rev-parse HEAD")
	if got := sh("grep -rlF -e '" + source.mark + "' / --exclude-dir=proc --exclude-dir=sys 2>/dev/null || true"); got != "" {
		t.Errorf("the token is inside, in %s", got)
	}
	pushed, err := service.PushWorkspace(t.Context(), ref)
	w.Must(err)
	branch := gittest.Git(t, repo.Path, nil, "log", "-1", "--format=%H %an %s", "refs/heads/"+pushed.Branch)
	if branch != tip+" Ada No points below zero" || !strings.HasPrefix(pushed.Branch, "agents/") {
		t.Errorf("pushed is %+v, and the repository has %q", pushed, branch)
	}
	lease, err := service.GetLease(t.Context(), ref.ID)
	w.Must(err)
	costs, err := service.Costs(t.Context(), sandbox.CostQuery{Labels: "task=scores", GroupBy: sandbox.CostByLabel("task")})
	w.Must(err)
	if len(costs.Rows) != 1 || costs.Rows[0].Label != "scores" || costs.Total.AwakeSeconds <= 0 ||
		costs.Total.Shadow <= 0 || lease.Labels["task"] != "scores" {
		t.Errorf("the bill is %+v, of %+v", costs.Rows, lease)
	}
	sh("echo more >> scores.sql && git commit --quiet --all --message More")
	tf.Run("destroy", "-auto-approve", "-input=false")
	diff, err := service.CollectWorkspace(t.Context(), sandbox.LeaseRef{ID: ref.ID}, sandbox.WorkspaceDiff)
	w.Must(err)
	text, err := io.ReadAll(diff)
	w.Must(errors.Join(err, diff.Close()))
	if !strings.Contains(string(text), "+more") {
		t.Errorf("after the end, the diff is %q", text)
	}
}

// quotedOrNull returns a quoted text, or null if it is empty.
func quotedOrNull(text string) string {
	if text == "" {
		return "null"
	}
	return fmt.Sprintf("%q", text)
}
