package docker_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// runtimesOf starts an engine with runtimes, if this machine can.
func runtimesOf(t *testing.T, runtimes map[string]dockertest.Runtime) *dockertest.Daemon {
	t.Helper()
	if _, err := exec.LookPath("dockerd"); err != nil || os.Getuid() != 0 {
		t.Skip("starts an engine of its own: needs root and dockerd")
	}
	return dockertest.StartDaemonWithRuntimes(t, runtimes)
}

// around is a runtime that runs a script before the engine's usual runtime. $bundle is the directory of the container's
// config.json, if the call names one. $log is the file for error messages.
func around(t *testing.T, script string) dockertest.Runtime {
	t.Helper()
	path := filepath.Join(t.TempDir(), "runtime")
	const begin = "#!/bin/sh\nfor a; do [ \"$last\" = --bundle ] && bundle=$a; [ \"$last\" = --log ] && " +
		"log=$a; last=$a; done\n"
	must(t, os.WriteFile(path, []byte(begin+script+"\nexec runc \"$@\"\n"), 0o755))
	return dockertest.Runtime{Path: path}
}

// on returns the settings of an environment with a runtime.
func (w *world) on(runtime string) sandbox.EnvironmentSpec {
	spec := w.environment()
	spec.Resources.MemoryMB, spec.Resources.PIDs = 256, 512 // a runtime's own kernel uses some of both
	spec.Confinement.Runtime = runtime
	return spec
}

// started counts the containers that were started since a time, by the engine's events.
func started(t *testing.T, api *dockerapi.Client, since time.Time) (n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	messages, errs := api.Events(ctx, dockerapi.EventListOptions{
		Since: since.Format(time.RFC3339Nano), Until: time.Now().Format(time.RFC3339Nano),
		Filters: dockerapi.NewFilters(dockerapi.Filter("type", "container"), dockerapi.Filter("event", "start")),
	})
	for {
		select {
		case <-messages:
			n++
		case err := <-errs:
			if !errors.Is(err, io.EOF) {
				t.Fatalf("reading the engine's events: %v", err)
			}
			return n
		}
	}
}

func TestARuntimeIsProvedOnceByACommand(t *testing.T) {
	t.Parallel()
	d := runtimesOf(t, map[string]dockertest.Runtime{"another": around(t, "")})
	w := newWorldAt(t, newExecutorOn(t, d.Host()), d.Connect(), d.Busybox(), func(*sandbox.EnvironmentSpec) {})

	began := time.Now()
	must(t, w.x.Provision(t.Context(), w.ref, w.on("another")))
	if n := started(t, w.api, began); n != 1 {
		t.Errorf("%d containers were started to try the runtime", n)
	}
	list, err := w.x.List(t.Context(), w.ref.LedgerID)
	must(t, err)
	if len(list) != 0 {
		t.Errorf("it left %+v", list)
	}
	began = time.Now()
	must(t, w.x.Provision(t.Context(), w.ref, w.on("another")))
	if n := started(t, w.api, began); n != 0 {
		t.Errorf("%d containers were started to try the runtime again", n)
	}

	spec := w.spec()
	spec.Confinement.Runtime = "another"
	must(t, w.x.Spawn(t.Context(), spec))
	if got := w.exec(t, spec.Handle, "echo", "fine"); got != "fine\n" {
		t.Errorf("a sandbox on it says %q", got)
	}
}

func TestARuntimeThatRunsNoCommandIsRefusedWithWhatIsMissing(t *testing.T) {
	t.Parallel()
	config := func(edit string) string {
		return "[ -n \"$bundle\" ] && sed -i '" + edit + "' $bundle/config.json"
	}
	d := runtimesOf(t, map[string]dockertest.Runtime{
		"closed":  around(t, config(`s#"destination":"/.sandbox-channel"#"destination":"/run/elsewhere"#`)),
		"lacking": around(t, config(`s#"prctl"#"none"#`)),
		"groups": around(t,
			`[ -n "$bundle" ] && { echo '{"level":"error","msg":"cannot set up cgroup for root"}' >"$log"; exit 1; }`),
		"absent":   {Path: "/no/such/runtime"},
		"limitles": {Path: around(t, "").Path, Args: []string{"--ignore-cgroups"}},
	})
	w := newWorldAt(t, newExecutorOn(t, d.Host()), d.Connect(), d.Busybox(), func(*sandbox.EnvironmentSpec) {})
	for runtime, says := range map[string][]string{
		"closed":   {"the channel's socket", "--host-uds=open", "daemon.json"},
		"lacking":  {"PR_CAP_AMBIENT", "PR_SET_CHILD_SUBREAPER", "another version"},
		"groups":   {"cannot set up cgroup for root", "--systemd-cgroup"},
		"absent":   {"/no/such/runtime", "install it"},
		"limitles": {"--ignore-cgroups", "nothing limits memory"},
	} {
		t.Run(runtime, func(t *testing.T) {
			wantRefused(t, w.x.Provision(t.Context(), w.ref, w.on(runtime)), says...)
			list, err := w.x.List(t.Context(), w.ref.LedgerID)
			must(t, err)
			if len(list) != 0 {
				t.Errorf("it left %+v", list)
			}
		})
	}
}

// wantRefused checks that a runtime is refused, and the error's text.
func wantRefused(t *testing.T, err error, says ...string) {
	t.Helper()
	var e *sandbox.Error
	if !errors.As(err, &e) || e.Code != sandbox.Invalid || len(e.Fields) != 1 ||
		e.Fields[0].Name != "confinement.runtime" {
		t.Fatalf("got %v", err)
	}
	for _, part := range says {
		if !strings.Contains(e.Fields[0].Problem, part) {
			t.Errorf("%q is not in: %s", part, e.Fields[0].Problem)
		}
	}
}
