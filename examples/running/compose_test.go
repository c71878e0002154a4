package running_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ledgerImage replaces the PostgreSQL image of the compose file, which not every machine can pull.
const ledgerImage = `FROM %s
RUN ln -s /usr/lib/postgresql/*/bin/* /usr/local/bin/ && mkdir -p /var/lib/postgresql/data /run/postgresql && \
    chown postgres:postgres /var/lib/postgresql/data /run/postgresql
USER postgres
CMD ["sh", "-ec", "cd /tmp; echo \"$POSTGRES_PASSWORD\" >pass; initdb -U \"$POSTGRES_USER\" --pwfile=pass \
    --auth-host=scram-sha-256 /var/lib/postgresql/data/db; echo 'host all all all scram-sha-256' \
    >>/var/lib/postgresql/data/db/pg_hba.conf; echo \"CREATE DATABASE $POSTGRES_DB\" | \
    postgres --single -D /var/lib/postgresql/data/db postgres; exec postgres -D /var/lib/postgresql/data/db -k /run/postgresql -c listen_addresses='*'"]
`

// TestTheComposeFileRuns: the commands at the top of the compose file start a reconciler that leases sandboxes. The
// test changes what differs on its machine: the port, the engine's socket, and the images that it cannot pull.
func TestTheComposeFileRuns(t *testing.T) {
	t.Parallel()
	if os.Getenv("SANDBOX_TEST_LONG") == "" {
		t.Skip("set SANDBOX_TEST_LONG=1: it makes an image of Debian with PostgreSQL")
	}
	run(t, "../../scripts/packages", "docker-compose")
	base := run(t, "../../scripts/debian-base", "task", "git", "python3", "postgresql")
	dir, socket, address := directory(t, 0o755), "", freeAddress(t)
	socket, group := engineSocket(t)
	container := filepath.Join(dir, "examples", "running", "container")
	must(t, os.MkdirAll(container, 0o755))
	must(t, os.Rename(build(t), filepath.Join(dir, "bin")))
	project := "sandbox-test-" + sandbox.RandomIDs(8)
	ledger := project + "/ledger"
	write := func(name, text string) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(container, name), []byte(text), 0o600))
	}
	changed := func(name string, changes ...string) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join("container", name))
		must(t, err)
		for i := 0; i < len(changes); i += 2 {
			if !strings.Contains(string(text), changes[i]) {
				t.Fatalf("%s does not have %q", name, changes[i])
			}
		}
		write(name, strings.NewReplacer(changes...).Replace(string(text)))
	}
	changed("Dockerfile", "BASE=alpine:3.22", "BASE=scratch")
	changed("compose.yaml",
		"name: sandbox\n", "version: '3.8'\n", // the first version of Compose accepts the name only as an option
		"image: postgres:17", "image: "+ledger,
		"127.0.0.1:8787:8787", address+":8787", "- /var/run/docker.sock:", "- "+socket+":")
	write("ledger.Dockerfile", fmt.Sprintf(ledgerImage, base))
	run(t, "docker", "build", "--quiet", "--tag", ledger, "--file", filepath.Join(container, "ledger.Dockerfile"), container)
	t.Cleanup(func() { run(t, "docker", "rmi", "--force", ledger, project+"_reconciler") })
	write(".env", "LEDGER_PASSWORD="+sandbox.RandomIDs(24)+"\nDOCKER_GID="+group+"\n")
	credentials := filepath.Join(container, "credentials")
	must(t, os.Mkdir(credentials, 0o700))
	must(t, os.Chown(credentials, 65532, 65532))

	compose := func(args ...string) string {
		t.Helper()
		return run(t, "docker-compose", append([]string{"--project-directory", container, "--file",
			filepath.Join(container, "compose.yaml"), "--project-name", project}, args...)...)
	}
	compose("config", "--quiet")
	t.Cleanup(func() {
		if t.Failed() {
			out, err := exec.Command("docker", "logs", project+"_reconciler_1").CombinedOutput()
			t.Logf("the reconciler's log (%v):\n%s", err, out)
		}
		compose("down", "--volumes")
	})
	compose("up", "--build", "--detach")
	awaitReady(t, "http://"+address)
	token := compose("exec", "-T", "reconciler", "/usr/local/bin/sandbox", "token", "create", "ops", "--scope", "admin",
		"--ledger", "postgres://sandbox@ledger/sandbox?sslmode=disable")
	g := playedBy(t, "http://"+address, token)
	player := g.join(sandbox.HostAccess{})
	if got := g.exec(player, "sh", "-c", "echo $IS_SANDBOXED"); got != "true\n" {
		t.Errorf("the sandbox says %q", got)
	}
	g.finish(player)
}
