package docker_test

import (
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
)

// Container runtimes give a directory in memory the mode of the image's own directory.
func TestTemporaryDirectoriesHaveTheirModesWhateverTheImageHas(t *testing.T) {
	t.Parallel()
	files := dockertest.BusyboxFiles(t)
	for i := range files {
		if files[i].Name == "tmp/" {
			files[i].Mode = 0o755
		}
	}
	files = append(files, dockertest.File{Name: "run/", Mode: 0o700}, dockertest.File{Name: "run/secrets/", Mode: 0o755})
	w := newWorld(t, dockertest.Import(t, files, "ENV PATH=/bin"))
	spec := w.spec()
	spec.Resources.DiskMB = 1024
	must(t, w.x.Spawn(t.Context(), spec))
	const want = "/tmp 1777\n/run 755\n/run/secrets 700\nwritten\n"
	if got := w.exec(t, spec.Handle,
		"sh", "-c", "stat -c '%n %a' /tmp /run /run/secrets; echo written > /tmp/f && cat /tmp/f"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if found, _ := w.findings(t, spec.SandboxID); len(found) != 0 {
		t.Errorf("findings: %v", found)
	}
	if got := w.exec(t, spec.Handle, "sh", "-c", "df -m /tmp | tail -n 1 | tr -s ' ' | cut -d' ' -f2; grep ' "+
		"/tmp ' /proc/mounts"); !strings.Contains(got, "32\n") || !strings.Contains(got, "noexec") {
		t.Errorf("its bounds are %q", got)
	}
}
