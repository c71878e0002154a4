package docker_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/dockerapi"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// imageWithVolumes creates an image whose volumes every user may write to.
func imageWithVolumes(t *testing.T) string {
	t.Helper()
	return dockertest.Import(t, append(dockertest.BusyboxFiles(t),
		dockertest.File{Name: "scratch/", Mode: 0o1777},
		dockertest.File{Name: "scratch/rules.txt", Mode: 0o644, Content: []byte("no cheating\n")},
		dockertest.File{Name: "workspace/", Mode: 0o755},
		dockertest.File{Name: "workspace/cache/", Mode: 0o1777},
		dockertest.File{Name: "workspace/cache/index", Mode: 0o644, Content: []byte("1\n")},
	), "ENV PATH=/bin", `VOLUME ["/scratch/", "/workspace", "/workspace/cache", "/tmp", "/tmp/new"]`)
}

// TestTheVolumesOfAnImageAreReadOnly: no limit would cover what code writes there.
func TestTheVolumesOfAnImageAreReadOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, imageWithVolumes(t))
	spec, waiting := w.spec(), w.spec()
	spec.Resources.DiskMB, waiting.Resources.DiskMB = 1024, 1024
	spec.Companions = sandbox.Companions{"db": {Image: w.image, Resources: spec.Resources}}
	waiting.LeaseID, waiting.AgentDID, waiting.Generation, waiting.Config = "", "", 0, nil // of a pool
	must(t, w.x.Spawn(t.Context(), spec))
	must(t, w.x.Spawn(t.Context(), waiting))
	volumes := w.volumesOf(t, name(spec.Handle), name(spec.Handle)+".db", name(waiting.Handle))

	for _, id := range []string{spec.SandboxID, waiting.SandboxID} {
		if found, _ := w.findings(t, id); len(found) != 0 {
			t.Errorf("findings: %v", found)
		}
	}
	const script = `cat /scratch/rules.txt /workspace/cache/index; grep -c '^tmpfs /tmp ' /proc/mounts
for dir in /scratch /workspace/cache /tmp/new /tmp /workspace; do touch $dir/mine 2>&1; done`
	const want = "no cheating\n1\n1\ntouch: /scratch/mine: Read-only file system\n" +
		"touch: /workspace/cache/mine: Read-only file system\ntouch: /tmp/new/mine: Read-only file system\n"
	if got := w.exec(t, spec.Handle, "sh", "-c", script); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}

	must(t, w.x.Sleep(t.Context(), spec.Handle, sandbox.SleepStop))
	wake(t, w.x, spec.Handle)
	if got := w.exec(t, spec.Handle, "cat", "/scratch/rules.txt"); got != "no cheating\n" {
		t.Errorf("after a stop it reads %q", got)
	}
	// A container that was removed by hand no longer names its volumes.
	must(t, w.api.ContainerRemove(t.Context(), name(waiting.Handle),
		dockerapi.ContainerRemoveOptions{Force: true, RemoveVolumes: true}))
	must(t, w.x.Kill(t.Context(), spec.Handle))
	must(t, w.x.Kill(t.Context(), waiting.Handle))
	all, err := w.api.VolumeList(t.Context(), dockerapi.VolumeListOptions{})
	must(t, err)
	for _, v := range all.Volumes {
		if slices.Contains(volumes, v.Name) && v.Labels["io.sandbox-lease.role"] != "guest" {
			t.Errorf("left behind: volume %s", v.Name)
		}
	}
}

// volumesOf returns the names of the volumes in containers.
func (w *world) volumesOf(t *testing.T, containers ...string) (names []string) {
	t.Helper()
	for _, container := range containers {
		c, err := w.api.ContainerInspect(t.Context(), container)
		must(t, err)
		for _, m := range c.Mounts {
			if m.Type == dockerapi.MountTypeVolume {
				names = append(names, m.Name)
			}
		}
	}
	return names
}

func TestALeftVolumeOfAnImageIsADependentOfItsSandbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t, imageWithVolumes(t))
	h := w.spawn(t)
	must(t, w.api.ContainerRemove(t.Context(), name(h),
		dockerapi.ContainerRemoveOptions{Force: true, RemoveVolumes: true}))
	all, err := w.x.Dependents(t.Context(), w.ref.LedgerID)
	must(t, err)
	n := 0
	for _, d := range all {
		if d.SandboxID == h.SandboxID && d.Kind == "image-volume" {
			must(t, w.x.RemoveDependent(t.Context(), d))
			n++
		}
	}
	if n != 3 { // at /scratch, /workspace/cache and /tmp/new
		t.Errorf("%d volumes of the image are dependents of the sandbox, want 3: %v", n, all)
	}
	must(t, w.x.Kill(t.Context(), h))
}

// TestAnImageWithAnUnusableVolumeIsRefused: an engine would mount a relative one writable.
func TestAnImageWithAnUnusableVolumeIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	relative := dockertest.Import(t, dockertest.BusyboxFiles(t), "VOLUME scratch")
	own, companion := w.environment(), w.environment()
	own.Image = relative
	companion.Companions = sandbox.Companions{"db": {Image: relative, Resources: companion.Resources}}
	for field, spec := range map[string]sandbox.EnvironmentSpec{"image": own, "companions.db.image": companion} {
		err := w.x.Provision(t.Context(), w.ref, spec)
		var e *sandbox.Error
		if !errors.As(err, &e) || e.Code != sandbox.Invalid || len(e.Fields) != 1 || e.Fields[0].Name != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	below := w.environment()
	below.Image = dockertest.Import(t, dockertest.BusyboxFiles(t), "VOLUME /data/db")
	must(t, w.x.Provision(t.Context(), w.ref, below))
	below.Snapshot = &sandbox.SnapshotSpec{}
	wantCode(t, w.x.Provision(t.Context(), w.ref, below), sandbox.Invalid) // nothing could be restored into it
	spec := w.spec()
	spec.Image = relative
	wantCode(t, w.x.Spawn(t.Context(), spec), sandbox.Invalid) // the image was changed since
	must(t, w.x.Kill(t.Context(), spec.Handle))
}
