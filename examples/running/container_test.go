package running_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// service is the compose file's description of the reconciler.
type service struct {
	Command     []string          `yaml:"command"`
	Environment map[string]string `yaml:"environment"`
	Volumes     []string          `yaml:"volumes"`
	GroupAdd    []string          `yaml:"group_add"`
	ReadOnly    bool              `yaml:"read_only"`
	Tmpfs       []string          `yaml:"tmpfs"`
	CapDrop     []string          `yaml:"cap_drop"`
	SecurityOpt []string          `yaml:"security_opt"`
}

// composed reads the compose file's reconciler, with the variables of its .env.
func composed(t *testing.T, env map[string]string) service {
	t.Helper()
	text, err := os.ReadFile("container/compose.yaml")
	must(t, err)
	var file struct {
		Services map[string]service `yaml:"services"`
	}
	must(t, yaml.Unmarshal([]byte(os.Expand(string(text), func(name string) string {
		name, _, _ = strings.Cut(name, ":?")
		return env[name]
	})), &file))
	return file.Services["reconciler"]
}

// arguments returns the arguments of docker run for the service.
func (s service) arguments() []string {
	var args []string
	add := func(flag string, values ...string) {
		for _, v := range values {
			args = append(args, flag, v)
		}
	}
	for name, value := range s.Environment {
		add("--env", name+"="+value)
	}
	add("--volume", s.Volumes...)
	add("--group-add", s.GroupAdd...)
	add("--tmpfs", s.Tmpfs...)
	add("--cap-drop", s.CapDrop...)
	add("--security-opt", s.SecurityOpt...)
	if s.ReadOnly {
		args = append(args, "--read-only")
	}
	return args
}

// TestRunningInAContainer: a reconciler runs as in the compose file, with another address, ledger and directory. It
// leases sandboxes on the engine beside it and ends them. A directory with the same path for both appears in the
// sandboxes.
func TestRunningInAContainer(t *testing.T) {
	t.Parallel()
	if os.Getenv("SANDBOX_TEST_ALL") == "" {
		t.Skip("set SANDBOX_TEST_ALL=1: it builds and runs the reconciler's image")
	}
	const image = "sandbox-test/reconciler"
	bin := build(t)
	run(t, "docker", "build", "--quiet", "--build-arg", "BASE=scratch", "--tag", image,
		"--file", "container/Dockerfile", bin)
	t.Cleanup(func() { run(t, "docker", "rmi", "--force", image) })

	socket, group := engineSocket(t)
	s := composed(t, map[string]string{
		"LEDGER_PASSWORD": "unused", // the URL of the test's ledger has its password
		"DOCKER_GID":      group,
	})
	credentials, games := directory(t, 0o700), directory(t, 0o755)
	must(t, os.Chown(credentials, 65532, 65532))
	// #nosec G306 -- other users read it
	must(t, os.WriteFile(filepath.Join(games, "rules.txt"), []byte("explore the dungeon\n"), 0o644))
	address := freeAddress(t)
	ledger := postgrestest.Start(t).URL(t)
	s.Environment["SANDBOX_SERVE_LISTEN"], s.Environment["SANDBOX_SERVE_LEDGER"],
		s.Environment["SANDBOX_SERVE_MOUNT_ALLOW"] = address, ledger, games
	s.Volumes = []string{socket + ":/var/run/docker.sock", credentials + ":/credentials", games + ":" + games + ":ro"}
	id := run(t, "docker", append(append([]string{"run", "--detach", "--network", "host"}, s.arguments()...),
		append([]string{image}, s.Command...)...)...)
	cleanUp(t, id, "logs", id)
	awaitReady(t, "http://"+address)

	token := run(t, "docker", "exec", id, "/usr/local/bin/sandbox", "token", "create",
		"ops", "--scope", "admin", "--ledger", ledger)
	g := playedBy(t, "http://"+address, token)
	player := g.join(sandbox.HostAccess{
		Mounts: []sandbox.Mount{{Source: games, Target: "/games"}},
		Copies: []sandbox.Copy{{Source: filepath.Join(games, "rules.txt"), Target: "/workspace/rules.txt"}},
	})
	if got := g.exec(player, "cat", "/games/rules.txt",
		"/workspace/rules.txt"); got != "explore the dungeon\nexplore the dungeon\n" {
		t.Errorf("the sandbox has %q", got)
	}
	g.finish(player)
}
