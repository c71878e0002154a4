package docker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// spawnAs creates a sandbox with a fixed user, or with its own for "".
func (w *world) spawnAs(t *testing.T, user string, mounts ...sandbox.Mount) driver.Handle {
	t.Helper()
	spec := w.spec()
	spec.Confinement, spec.Mounts = sandbox.Confinement{User: user}.WithDefaults(), mounts
	must(t, w.x.Spawn(t.Context(), spec))
	return spec.Handle
}

// imageOfApp is a common kind of image: its programs run as user 1000, and its files belong to that user or to root.
func imageOfApp(t *testing.T) string {
	t.Helper()
	files := dockertest.BusyboxFiles(t)
	for i := range files {
		if files[i].Name == "tmp/" {
			files[i].Mode = 0o755
		}
	}
	return dockertest.Import(t, append(files,
		dockertest.File{Name: "etc/passwd", Mode: 0o644, Content: []byte(appUsers)},
		dockertest.File{Name: "home/app/", Mode: 0o700, UID: 1000, GID: 1000},
		dockertest.File{Name: "home/app/key", Mode: 0o644, UID: 1000, GID: 1000, Content: []byte("home\n")},
		dockertest.File{Name: "srv/of-root", Mode: 0o600, Content: []byte("root\n")},
		dockertest.File{Name: "srv/of-app", Mode: 0o600, UID: 1000, GID: 1000, Content: []byte("app\n")},
		dockertest.File{Name: "srv/of-group", Mode: 0o640, GID: 1000, Content: []byte("group\n")},
		dockertest.File{Name: "srv/of-all", Mode: 0o644, UID: 1000, GID: 1000, Content: []byte("all\n")},
		dockertest.File{Name: "workspace/of-app", Mode: 0o600, UID: 1000, GID: 1000, Content: []byte("given\n")},
	), "ENV PATH=/bin", "USER app", "WORKDIR /home/app")
}

func TestFilesOfTheImageKeepTheirOwners(t *testing.T) {
	t.Parallel()
	w := newWorld(t, imageOfApp(t))
	const script = `for f in /srv/of-root /srv/of-app /srv/of-group /srv/of-all /home/app/key /workspace/of-app; do cat $f 2>/dev/null || echo refused $f; done
		for d in /tmp /data "$HOME"; do touch $d/new && stat -c %u:%g $d/new; done; echo $(id -u):$(id -g)`
	own := w.spawnAs(t, "")
	for user, want := range map[string]string{
		"":          "refused /srv/of-root\nrefused /srv/of-app\nrefused /srv/of-group\nall\nrefused /home/app/key\ngiven\n",
		"1000:1000": "refused /srv/of-root\napp\ngroup\nall\nhome\ngiven\n",
		"2000:1000": "refused /srv/of-root\nrefused /srv/of-app\ngroup\nall\nrefused /home/app/key\ngiven\n",
	} {
		h, is := own, user
		if user == "" {
			is = ownUser(own)
		} else {
			h = w.spawnAs(t, user)
		}
		if got, want := w.exec(t, h, "sh", "-c", script), want+fmt.Sprintf("%[1]s\n%[1]s\n%[1]s\n%[1]s\n", is); got != want {
			t.Errorf("as %q: got  %q\nwant %q", user, got, want)
		}
	}
}

func TestAWritableMountKeepsItsOwners(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dockertest.Busybox(t))
	const owner = 1000
	if os.Getuid() != 0 {
		t.Skip("gives directories to other users")
	}
	mount := func(mode os.FileMode) (dir string, m sandbox.Mount) {
		dir = t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "there"), []byte("before\n"), 0o644))
		must(t, os.Chown(filepath.Join(dir, "there"), owner, owner))
		must(t, os.Chown(dir, owner, owner))
		must(t, os.Chmod(dir, mode))
		return dir, sandbox.Mount{Source: dir, Target: "/mnt/shared", Writable: true}
	}
	ownerOf := func(path string) string {
		info, err := os.Stat(path)
		must(t, err)
		s, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			t.Fatalf("%s has no owner", path)
		}
		return fmt.Sprintf("%d:%d", s.Uid, s.Gid)
	}
	const script = "cat /mnt/shared/there; touch /mnt/shared/new 2>/dev/null || echo refused; echo x 2>/dev/null >> " +
		"/mnt/shared/there || echo kept"
	for name, row := range map[string]struct {
		user string
		mode os.FileMode
		want string
	}{
		"an owner's directory and a sandbox's own user":  {"", 0o755, "before\nrefused\nkept\n"},
		"an open directory and a sandbox's own user":     {"", 0o777, "before\nkept\n"},
		"an owner's directory and the owner as its user": {"1000:1000", 0o755, "before\n"},
	} {
		dir, m := mount(row.mode)
		h := w.spawnAs(t, row.user, m)
		if got := w.exec(t, h, "sh", "-c", script); got != row.want {
			t.Errorf("%s: got %q, want %q", name, got, row.want)
		}
		if got := ownerOf(dir); got != "1000:1000" {
			t.Errorf("%s: the directory belongs to %s now", name, got)
		}
		if row.mode == 0o755 && row.user == "" {
			continue
		}
		want := row.user
		if want == "" {
			want = ownUser(h)
		}
		if got := ownerOf(filepath.Join(dir, "new")); got != want {
			t.Errorf("%s: on the host, the new file belongs to %s, want %s", name, got, want)
		}
	}
}
