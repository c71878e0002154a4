package running_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// firstCommandLimit is the longest time from the installation to the first command in a sandbox.
const firstCommandLimit = time.Minute

// dist returns the directory that scripts/release/build wrote.
func dist(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("SANDBOX_TEST_RELEASE")
	if dir == "" {
		t.Skip("set SANDBOX_TEST_RELEASE to the directory of a release: scripts/test-release builds one")
	}
	return dir
}

// TestRunningFromThePackage installs the release's own package in a Debian that only has the package's dependencies.
// The reconciler starts as the unit specifies, and a lease runs a command, ends, and has a cost. The package can be
// removed.
func TestRunningFromThePackage(t *testing.T) {
	t.Parallel()
	pkg, player := releasePackage(t, "deb"), dockertest.Busybox(t)
	socket, group := engineSocket(t)
	sh := cleanMachine(t, pkg, "/var/log/reconciler", "--network", "host", "--volume", socket+":/run/docker.sock")
	sh("systemd-sysusers --inline 'g docker " + group + "'") // as the engine's package does
	address := freeAddress(t)

	begun := time.Now()
	sh("dpkg --install /package")
	installed := time.Since(begun)
	// systemd would do this for the unit.
	sh("install -d -o sandbox -g sandbox -m 0700 /var/lib/sandbox")
	serve := sh(`sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/sandbox-reconciler.service`)
	sh("SANDBOX_SERVE_LISTEN=" + address + " runuser -u sandbox -- " + serve + " >/var/log/reconciler 2>&1 &")
	awaitReady(t, "http://"+address)
	ready := time.Since(begun)
	token := sh("awk '{ print $2 }' /var/lib/sandbox/tokens")
	command := fmt.Sprintf("export SANDBOX_RECONCILER_URL=http://%s SANDBOX_RECONCILER_TOKEN=%s; sandbox ", address, token)
	g := playedBy(t, "http://"+address, token)
	g.makeEnvironment(sandbox.EnvironmentSpec{Type: sandbox.TypeCatan, Image: player})
	sh(command + "lease create did:plc:ada " + environment)
	const line = "Ada builds a city"
	if got := sh(command + "exec did:plc:ada::" + environment + " -- echo " + line); got != line {
		t.Errorf("the first command writes %q", got)
	}
	first := time.Since(begun)
	t.Logf("from the installation: installed after %.1f s, ready after %.1f s, first command after %.1f s",
		installed.Seconds(), ready.Seconds(), first.Seconds())
	if first > firstCommandLimit {
		t.Errorf("the first command ends %s after the installation began, later than %s", first, firstCommandLimit)
	}

	lease, err := g.client.GetLease(t.Context(), "did:plc:ada::"+environment)
	must(t, err)
	g.finish(sandbox.LeaseRef{ID: lease.ID, Generation: lease.Generation})
	if got := sh(command + "cost"); !strings.Contains(got, environment) {
		t.Errorf("the costs are:\n%s", got)
	}

	wantSettings(t, sh)
	if got := sh("dpkg --verify sandbox-lease; dpkg-query -W -f '${Conffiles}|${Conflicts}' sandbox-lease"); !strings.Contains(got,
		"/etc/sandbox/reconciler.yaml") || !strings.Contains(got, "|policycoreutils-sandbox") {
		t.Errorf("dpkg knows the package as %s", got)
	}
	sh("dpkg --remove sandbox-lease; ! command -v sandbox; [ -e /var/lib/sandbox/ledger.db ]; [ -e /etc/sandbox/reconciler.yaml ]")
}

// TestRunningFromTheRPM: rpm installs the release's other package. It keeps changed settings on a reinstallation and on
// removal. The machine is a Debian, so the test does not check the dependencies.
func TestRunningFromTheRPM(t *testing.T) {
	t.Parallel()
	pkg := releasePackage(t, "rpm")
	sh := cleanMachine(t, pkg, "/dev/null")
	sh("rpm --install --nodeps /package")
	if got := sh("sandbox --version"); !strings.Contains(got, "0.1.0") {
		t.Errorf("the program says that it is %s", got)
	}
	wantSettings(t, sh)
	sh("rpm --verify --nodeps --nogroup sandbox-lease")
	for query, want := range map[string]string{
		"configfiles": "/etc/sandbox/reconciler.yaml",
		"conflicts":   "policycoreutils-sandbox",
	} {
		if got := sh("rpm --query --" + query + " sandbox-lease"); got != want {
			t.Errorf("rpm knows as the package's %s: %s", query, got)
		}
	}
	sh("install -d /var/lib/sandbox; touch /var/lib/sandbox/ledger.db; echo '# ours' >>/etc/sandbox/reconciler.yaml")
	sh("rpm --upgrade --replacepkgs --nodeps /package; tail -n 1 /etc/sandbox/reconciler.yaml | grep -x '# ours'")
	wantSettings(t, sh)
	sh("rpm --erase sandbox-lease; ! command -v sandbox; [ -e /var/lib/sandbox/ledger.db ]; " +
		"tail -n 1 /etc/sandbox/reconciler.yaml.rpmsave | grep -x '# ours'")
}

// releasePackage returns the path of the release's package for this machine.
func releasePackage(t *testing.T, format string) string {
	t.Helper()
	packages, err := filepath.Glob(filepath.Join(dist(t), "release", "sandbox-lease_*_"+runtime.GOARCH+"."+format))
	must(t, err)
	if len(packages) != 1 {
		t.Fatalf("the release has %d files %s for %s", len(packages), format, runtime.GOARCH)
	}
	return packages[0]
}

// cleanMachine starts a container of a Debian that has the dependencies of a package, and the package as /package. It
// returns a function that runs a script there. If the test fails, it shows the log.
func cleanMachine(t *testing.T, pkg, log string, options ...string) func(script string) string {
	t.Helper()
	tools := []string{"systemd-standalone-sysusers"}
	if filepath.Ext(pkg) == ".rpm" {
		tools = append(tools, "rpm")
	}
	image := run(t, "../../scripts/debian-base", append([]string{"clean"}, tools...)...)
	id := run(t, "docker", slices.Concat([]string{"run", "--detach"}, options, []string{image, "sleep", "infinity"})...)
	cleanUp(t, id, "exec", id, "cat", log)
	run(t, "docker", "cp", pkg, id+":/package")
	return func(script string) string {
		t.Helper()
		return run(t, "docker", "exec", id, "sh", "-ec", script)
	}
}

// wantSettings checks who may read the settings files of a package.
func wantSettings(t *testing.T, sh func(script string) string) {
	t.Helper()
	want := "750 root sandbox /etc/sandbox\n640 root sandbox /etc/sandbox/reconciler.yaml"
	if got := sh("stat -c '%a %U %G %n' /etc/sandbox /etc/sandbox/reconciler.yaml"); got != want {
		t.Errorf("the settings are\n%s\nand not\n%s", got, want)
	}
}

// TestRunningFromTheImage: the release's image for this machine serves from the engine's socket and a new volume, as
// the guide says.
func TestRunningFromTheImage(t *testing.T) {
	t.Parallel()
	const tag = "sandbox-test/release:latest"
	archive := filepath.Join(t.TempDir(), "image.tar")
	index, err := layout.ImageIndexFromPath(filepath.Join(dist(t), "image"))
	must(t, err)
	images, err := partial.FindImages(index, func(d v1.Descriptor) bool {
		return d.Platform != nil && d.Platform.Architecture == runtime.GOARCH
	})
	must(t, err)
	if len(images) != 1 {
		t.Fatalf("the release has %d images for %s", len(images), runtime.GOARCH)
	}
	ref, err := name.NewTag(tag)
	must(t, err)
	must(t, tarball.WriteToFile(archive, ref, images[0]))
	run(t, "docker", "load", "--input", archive)
	t.Cleanup(func() { run(t, "docker", "rmi", "--force", tag) })

	socket, group := engineSocket(t)
	address := freeAddress(t)
	id := run(t, "docker", "run", "--detach", "--network", "host", "--volume", socket+":/var/run/docker.sock", "--group-add",
		group, "--volume", "/var/lib/sandbox", "--read-only", "--tmpfs", "/tmp", tag, "serve", "--generate-credentials", "--listen", address)
	cleanUp(t, id, "logs", id)
	awaitReady(t, "http://"+address)
	run(t, "docker", "exec", id, "/usr/bin/sandbox", "doctor")
	tokens := filepath.Join(t.TempDir(), "tokens")
	run(t, "docker", "cp", id+":/var/lib/sandbox/terraform-provider-sandbox/tokens", tokens)
	text, err := os.ReadFile(tokens) // #nosec G304 -- the test's own
	must(t, err)
	g := playedBy(t, "http://"+address, strings.Fields(string(text))[1])
	ann := g.join(sandbox.HostAccess{})
	if got := g.exec(ann, "echo", "hello"); got != "hello\n" {
		t.Errorf("the sandbox answers %q", got)
	}
	g.finish(ann)
}
