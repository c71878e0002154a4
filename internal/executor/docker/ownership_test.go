package docker_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestNeighboursWithOurNamesAreLeftAlone(t *testing.T) {
	t.Parallel()
	w, api := newWorld(t, dockertest.Busybox(t)), dockertest.Engine(t)

	taken := w.spec()
	c, err := api.ContainerCreate(t.Context(), &dockerapi.ContainerConfig{Image: w.image, Cmd: []string{"true"}}, nil, nil,
		nil, name(taken.Handle))
	must(t, err)
	wantCode(t, w.x.Spawn(t.Context(), taken), sandbox.Conflict)
	wantCode(t, w.x.Kill(t.Context(), taken.Handle), sandbox.Conflict)
	_, err = w.x.Inspect(t.Context(), taken.Handle)
	wantCode(t, err, sandbox.Conflict)
	must(t, api.ContainerRemove(t.Context(), c.ID, dockerapi.ContainerRemoveOptions{})) // it still exists

	taken = w.spec()
	v, err := api.VolumeCreate(t.Context(), dockerapi.VolumeCreateOptions{Name: name(taken.Handle) + "-workspace"})
	must(t, err)
	wantCode(t, w.x.Spawn(t.Context(), taken), sandbox.Conflict)
	wantCode(t, w.x.Kill(t.Context(), taken.Handle), sandbox.Conflict)
	must(t, api.VolumeRemove(t.Context(), v.Name, false))
	must(t, w.x.Kill(t.Context(), taken.Handle))
}

func TestSpawnFinishesWhatACrashLeft(t *testing.T) {
	t.Parallel()
	w, api := newWorld(t, dockertest.Busybox(t)), dockertest.Engine(t)
	populator := w.spec()
	_, err := api.ContainerCreate(t.Context(), &dockerapi.ContainerConfig{
		Image: w.image,
		Cmd:   []string{"true"},
		Labels: map[string]string{
			"io.sandbox-lease.ledger": w.ref.LedgerID, "io.sandbox-lease.role": "carrier",
		},
	}, nil, nil, nil, name(populator.Handle)+"-carrier")
	must(t, err)
	must(t, w.x.Spawn(t.Context(), populator))
	if got := w.exec(t, populator.Handle, "stat", "-c", "%u:%g", "/workspace"); got != ownUser(populator.Handle)+"\n" {
		t.Errorf("workspace belongs to %q", got)
	}

	created := w.spec()
	must(t, w.x.Spawn(t.Context(), created))
	made, err := api.ContainerInspect(t.Context(), name(created.Handle))
	must(t, err)
	must(t, api.ContainerRemove(t.Context(), made.ID, dockerapi.ContainerRemoveOptions{Force: true}))
	// The container is created but not started.
	_, err = api.ContainerCreate(t.Context(), made.Config, made.HostConfig, nil, nil, name(created.Handle))
	must(t, err)
	o, err := w.x.Inspect(t.Context(), created.Handle)
	must(t, err)
	if o.State != sandbox.StateCreated {
		t.Errorf("state is %s, want created", o.State)
	}
	must(t, w.x.Spawn(t.Context(), created))
	if got := w.exec(t, created.Handle, "echo", "up"); got != "up\n" {
		t.Errorf("the sandbox says %q", got)
	}
}

func TestPrunedEnvironmentIsMadeAgain(t *testing.T) {
	t.Parallel()
	w, api := newWorld(t, dockertest.Busybox(t)), dockertest.Engine(t)
	f := dockerapi.NewFilters(dockerapi.Filter("label", "io.sandbox-lease.ledger="+w.ref.LedgerID),
		dockerapi.Filter("label", "io.sandbox-lease.environment="+w.ref.EnvironmentID))
	volumes, err := api.VolumeList(t.Context(), dockerapi.VolumeListOptions{Filters: f})
	must(t, err)
	images, err := api.ImageList(t.Context(), dockerapi.ImageListOptions{Filters: f})
	must(t, err)
	if len(volumes.Volumes) != 1 || len(images) != 1 {
		t.Fatalf("an environment has %d volumes and %d images, want 1 and 1", len(volumes.Volumes), len(images))
	}
	must(t, api.VolumeRemove(t.Context(), volumes.Volumes[0].Name, false))
	_, err = api.ImageRemove(t.Context(), images[0].ID, dockerapi.ImageRemoveOptions{Force: true})
	must(t, err)
	if got := w.exec(t, w.spawn(t), "echo", "up"); got != "up\n" {
		t.Errorf("the sandbox says %q", got)
	}
}

// TestAPruneBesideASpawn: a spawn refills a guest volume that an operator has pruned before or during it.
func TestAPruneBesideASpawn(t *testing.T) {
	t.Parallel()
	x, p := throughProxy(t)
	w, api := newWorldOf(t, newExecutor(t), dockertest.Busybox(t), func(*sandbox.EnvironmentSpec) {}), dockertest.Engine(t)
	f := dockerapi.NewFilters(dockerapi.Filter("label", "io.sandbox-lease.ledger="+w.ref.LedgerID),
		dockerapi.Filter("label", "io.sandbox-lease.role=guest"))
	prune := func() {
		volumes, err := api.VolumeList(t.Context(), dockerapi.VolumeListOptions{Filters: f})
		if err == nil && len(volumes.Volumes) == 1 {
			err = api.VolumeRemove(t.Context(), volumes.Volumes[0].Name, false)
		}
		if err != nil || len(volumes.Volumes) != 1 {
			t.Errorf("pruned one of %d volumes: %v", len(volumes.Volumes), err)
		}
	}
	works := func(when string) {
		t.Helper()
		spec := w.spec()
		must(t, x.Spawn(t.Context(), spec))
		if got := w.exec(t, spec.Handle, "echo", "up"); got != "up\n" {
			t.Errorf("pruned %s: the sandbox says %q", when, got)
		}
		must(t, x.Kill(t.Context(), spec.Handle))
	}
	works("never")
	prune()
	works("before a spawn")
	var once sync.Once
	p.Set(func(rw http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		if strings.HasSuffix(r.URL.Path, "/containers/create") {
			once.Do(prune)
		}
		pass(rw, r)
	})
	works("during a spawn")
}

func TestChangesBehindTheBackAreSeen(t *testing.T) {
	t.Parallel()
	other := dockertest.Import(t, []dockertest.File{{Name: "other", Mode: 0o644, Content: []byte("x")}})
	w, api := newWorld(t, dockertest.Busybox(t)), dockertest.Engine(t)
	spec := w.spec()
	must(t, w.x.Spawn(t.Context(), spec))
	_, err := api.ContainerUpdate(t.Context(), name(spec.Handle),
		dockerapi.UpdateConfig{Resources: dockerapi.Resources{Memory: 128 << 20, MemorySwap: 128 << 20}})
	must(t, err)
	o, err := w.x.Inspect(t.Context(), spec.Handle)
	must(t, err)
	if o.Resources.MemoryMB != 128 || o.Image != spec.Image {
		t.Errorf("observation is %+v", o)
	}
	// Another program replaces it with a container of another image with the same labels.
	c, err := api.ContainerInspect(t.Context(), name(spec.Handle))
	must(t, err)
	must(t, api.ContainerRemove(t.Context(), c.ID, dockerapi.ContainerRemoveOptions{Force: true}))
	c.Config.Image = other
	_, err = api.ContainerCreate(t.Context(), c.Config, &dockerapi.HostConfig{NetworkMode: "none"}, nil,
		nil, name(spec.Handle))
	must(t, err)
	o, err = w.x.Inspect(t.Context(), spec.Handle)
	must(t, err)
	img, err := api.ImageInspect(t.Context(), other)
	must(t, err)
	if o.Image != img.ID {
		t.Errorf("image is %s, want %s", o.Image, img.ID)
	}
}

func TestUnreachableEngineIsUnavailable(t *testing.T) {
	t.Parallel()
	x, err := docker.New(docker.Config{Host: "unix:///nonexistent/docker.sock"})
	must(t, err)
	defer func() { must(t, x.Close()) }()
	h := driver.Handle{LedgerID: "l", EnvironmentID: "e", SandboxID: "s", Instance: "i"}
	ref := driver.EnvironmentRef{LedgerID: "l", EnvironmentID: "e", Instance: "i"}
	r, err := sandbox.ExecRequest{Command: []string{"true"}}.Normalize()
	must(t, err)
	ctx := t.Context()
	for what, call := range map[string]func() error{
		"instance": func() error { _, err := x.Instance(ctx); return err },
		"provision": func() error {
			return x.Provision(ctx, ref, sandbox.EnvironmentSpec{Image: "i", Network: sandbox.NetworkNone})
		},
		"deprovision": func() error { return x.Deprovision(ctx, ref) },
		"spawn": func() error {
			return x.Spawn(ctx,
				driver.SandboxSpec{Handle: h, Image: "i", Network: sandbox.NetworkNone, Deadline: time.Now().Add(time.Hour)})
		},
		"sleep":   func() error { return x.Sleep(ctx, h, sandbox.SleepPause) },
		"wake":    func() error { _, err := x.Wake(ctx, h); return err },
		"kill":    func() error { return x.Kill(ctx, h) },
		"exec":    func() error { _, err := x.Exec(ctx, h, r); return err },
		"inspect": func() error { _, err := x.Inspect(ctx, h); return err },
		"list":    func() error { _, err := x.List(ctx, "l"); return err },
		"usage":   func() error { _, err := x.Usage(ctx, h); return err },
		"watch":   func() error { return x.Watch(ctx, "l", func() {}, func(string) {}) },
	} {
		if err := call(); sandbox.CodeOf(err) != sandbox.Unavailable {
			t.Errorf("%s: code %q, want unavailable: %v", what, sandbox.CodeOf(err), err)
		}
	}
}

func TestSpecificationsThatNoEngineCanKeepAreInvalid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	for what, change := range map[string]func(*driver.SandboxSpec){
		"odd network": func(s *driver.SandboxSpec) { s.Network = "host" },
		"no deadline": func(s *driver.SandboxSpec) { s.Deadline = time.Time{} },
		"huge config": func(s *driver.SandboxSpec) { s.Config = make([]byte, 200_000) },
		"odd id":      func(s *driver.SandboxSpec) { s.SandboxID = "../x" },
		"no instance": func(s *driver.SandboxSpec) { s.Instance = "" },
	} {
		spec := w.spec()
		change(&spec)
		if err := w.x.Spawn(t.Context(), spec); sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("%s: code %q, want invalid: %v", what, sandbox.CodeOf(err), err)
		}
	}
	env := w.environment()
	env.Resources.CPUMillis = 1_000_000
	wantCode(t, w.x.Provision(t.Context(), w.ref, env), sandbox.Invalid)
	env = w.environment()
	env.Network = "bridge"
	wantCode(t, w.x.Provision(t.Context(), w.ref, env), sandbox.Invalid)
}
