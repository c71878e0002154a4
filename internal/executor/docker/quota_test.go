package docker_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestAnEnforcedDiskLimitIsAskedOfTheVolumes stands in for an engine with quotas. It notes the requested sizes, and
// makes the machine's own engine create the volumes without them.
func TestAnEnforcedDiskLimitIsAskedOfTheVolumes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	var mu sync.Mutex // guards sizes
	sizes := map[string]string{}
	proxy := dockertest.NewProxy(t)
	proxy.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		if strings.HasSuffix(r.URL.Path, "/volumes/create") {
			mu.Lock()
			note(t, sizes, r)
			mu.Unlock()
		}
		pass(rw, r)
	})
	x, err := docker.New(docker.Config{Host: proxy.Host()})
	must(t, err)
	defer func() { must(t, x.Close()) }()
	environment, spec := w.environment(), w.spec()
	environment.Confinement.DiskLimit, spec.Confinement.DiskLimit = sandbox.DiskEnforced, sandbox.DiskEnforced
	spec.Resources.DiskMB = 2048
	must(t, x.Provision(t.Context(), w.ref, environment))
	must(t, x.Spawn(t.Context(), spec))
	for kind, want := range map[string]string{"workspace": "2048000000", "data": "2048000000"} {
		if got := sizes[name(spec.Handle)+"-"+kind]; got != want {
			t.Errorf("the volume of %s is asked to take %q bytes, want %q", kind, got, want)
		}
	}
	if len(sizes) != 3 { // including the volume that tests the engine's quotas
		t.Errorf("sizes were asked for of %v", sizes)
	}
}

// note stores the size in a request, and removes it from the request.
func note(t *testing.T, sizes map[string]string, r *http.Request) {
	var asked map[string]any
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		t.Error(err)
	}
	if options, ok := asked["DriverOpts"].(map[string]any); ok && options["size"] != nil {
		sizes[asked["Name"].(string)] = options["size"].(string)
		delete(asked, "DriverOpts")
	}
	body, err := json.Marshal(asked)
	if err != nil {
		t.Error(err)
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
}
