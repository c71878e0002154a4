package reconciler_test

import (
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/cloudflaretest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/faulttest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// ground is the backend of a world's sandboxes.
type ground interface {
	// place selects the backend in an environment.
	place(w *world, spec *sandbox.EnvironmentSpec)
	// running counts the running containers of the world's sandboxes.
	running(w *world) int
	// left names the remaining objects of the world's sandboxes, "" if there are none.
	left(w *world) string
	// steps are the calls that change the backend during a whole life, in order.
	steps() []step
}

// faults is a proxy of a backend that can misbehave.
type faults interface{ Set(f faulttest.Fault) }

// step is a call that changes something in the backend, in the terms of its API.
type step struct {
	name string
	call *regexp.Regexp
}

func (s step) is(r *http.Request) bool { return s.call.MatchString(r.Method + " " + r.URL.Path) }

// onDocker is the engine of the world's configuration.
type onDocker struct{}

func (onDocker) place(w *world, spec *sandbox.EnvironmentSpec) { spec.Image = w.image }

func (onDocker) running(w *world) int { return w.containers() }

func (onDocker) left(w *world) string {
	filter := w.labelled()
	return w.docker("ps", "-aq", "--filter", filter, "--filter", sandboxes) +
		w.docker("volume", "ls", "-q", "--filter", filter, "--filter", "label=io.sandbox-lease.sandbox")
}

func (onDocker) steps() []step { return steps }

// steps are the steps of a life on Docker. A command is not one of them: it makes no request to the engine.
var steps = []step{
	{"create a volume", regexp.MustCompile(`^POST .*/volumes/create$`)},
	{"create a container", regexp.MustCompile(`^POST .*/containers/create$`)},
	{"start the container", regexp.MustCompile(`^POST .*/containers/[^/]+/start$`)},
	{"remove the carrier", regexp.MustCompile(`^DELETE .*/containers/[^/]+-carrier$`)},
	{"pause", regexp.MustCompile(`^POST .*/containers/[^/]+/pause$`)},
	{"unpause", regexp.MustCompile(`^POST .*/containers/[^/]+/unpause$`)},
	{"remove the container", regexp.MustCompile(`^DELETE .*/containers/[0-9a-f]{64}$`)},
	{"remove a volume", regexp.MustCompile(`^DELETE .*/volumes/`)},
}

// onCloudflare is an account on this machine.
type onCloudflare struct{ account *cloudflaretest.Account }

func (g onCloudflare) place(w *world, spec *sandbox.EnvironmentSpec) {
	spec.Backend, spec.Image = sandbox.Cloudflare, cloudflaretest.ImageID(w, dockertest.Busybox(w))
	spec.Resources, _ = sandbox.ResourcesOf("lite")
}

// containers returns the running containers of the world's sandboxes, without their proxies.
func (onCloudflare) containers(w *world) []string {
	w.Helper()
	info, err := w.service.Ledger(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return containersOf(w, info.ID)
}

// containersOf returns the running containers of a ledger's sandboxes on Cloudflare.
func containersOf(w *world, ledgerID string) (all []string) {
	w.Helper()
	for _, name := range dockertest.Running(w, "workerd-"+cloudflare.DeploymentPrefix(ledgerID)) {
		if !strings.HasSuffix(name, "-proxy") {
			all = append(all, name)
		}
	}
	return all
}

func (g onCloudflare) running(w *world) int { return len(g.containers(w)) }

// left waits for a moment: the local runtime removes a container only after it has reported its end. It keeps a stopped
// container until its object has been inactive for the container's maximum idle time.
func (g onCloudflare) left(w *world) string {
	var all []string
	testwait.Poll(10*time.Second, func() bool {
		all = g.containers(w)
		return len(all) == 0
	})
	return strings.Join(all, " ")
}

func (onCloudflare) steps() []step {
	const sandboxes = ` /v1/instances/[^/]+/ledgers/[^/]+/sandboxes/[^/]+`
	return []step{
		{"start a sandbox", regexp.MustCompile(`^PUT` + sandboxes + `$`)},
		{"put it to sleep", regexp.MustCompile(`^POST` + sandboxes + `/sleep$`)},
		{"wake it", regexp.MustCompile(`^POST` + sandboxes + `/wake$`)},
		{"open a channel for a command", regexp.MustCompile(`^GET` + sandboxes + `/channel$`)},
		{"remove it", regexp.MustCompile(`^DELETE` + sandboxes + `$`)},
	}
}
