package docker_test

import (
	"os"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/executortest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const turnProgram = `package main

import (
	"encoding/json"
	"os"
)

func main() {
	var state struct{ Turn int }
	if err := json.NewDecoder(os.Stdin).Decode(&state); err != nil {
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(map[string]int{"action": state.Turn + 1})
}
`

func TestImageFromScratchNeedsNothingInIt(t *testing.T) {
	t.Parallel()
	image := dockertest.Import(t, []dockertest.File{
		{Name: "turn", Mode: 0o755, Content: executortest.Compile(t, turnProgram)},
	})
	w := newWorld(t, image)
	h := w.spawn(t)
	r, err := sandbox.ExecRequest{Command: []string{"/turn"}, Stdin: strings.NewReader(`{"Turn":41}`)}.Normalize()
	must(t, err)
	res, err := w.x.Exec(t.Context(), h, r)
	must(t, err)
	if res.ExitCode != 0 || string(res.Stdout) != "{\"action\":42}\n" {
		t.Errorf("got %+v: %s %s", res, res.Stdout, res.Stderr)
	}
	out, err := w.x.CopyFrom(t.Context(), h, "/workspace/config.json")
	must(t, err)
	must(t, out.Close())
	must(t, w.x.Sleep(t.Context(), h, sandbox.SleepStop))
	wake(t, w.x, h)
}

func TestImageWithItsOwnWorkspace(t *testing.T) {
	t.Parallel()
	shell, err := os.ReadFile("/bin/busybox")
	must(t, err)
	files := []dockertest.File{
		{Name: "bin/busybox", Mode: 0o755, Content: shell},
		{Name: "workspace/", Mode: 0o700}, {Name: "workspace/board.txt", Mode: 0o600, Content: []byte("hex\n")},
		{Name: "workspace/config.json", Mode: 0o600, Content: []byte("the image's\n")},
		{Name: "data/saves/", Mode: 0o755}, {Name: "data/saves/first", Mode: 0o644, Content: []byte("1\n")},
	}
	for name, changes := range map[string][]string{
		"owned by root":     {"WORKDIR /workspace"},
		"declared a volume": {"VOLUME /workspace", "USER 0:0", "ENTRYPOINT [\"/bin/busybox\"]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, dockertest.Import(t, files, changes...))
			h := w.spawn(t)
			const script = `cd /workspace; b=/bin/busybox; $b stat -c '%u:%g %n' /workspace * /data/saves/first; $b cat board.txt config.json; echo " mine" >> board.txt; $b mkdir new`
			user := ownUser(h)
			want := user + " /workspace\n" + user + " board.txt\n" + user + " config.json\n" + user +
				" /data/saves/first\nhex\n{\"seat\":\"red\"}"
			if got := w.exec(t, h, "/bin/busybox", "sh", "-c", script); got != want {
				t.Errorf("got  %q\nwant %q", got, want)
			}
			other := w.spawn(t)
			if got := w.exec(t, other, "/bin/busybox", "cat", "/workspace/board.txt"); got != "hex\n" {
				t.Errorf("another sandbox begins with %q", got)
			}
		})
	}
}

func TestEmptyWorkspaceOfRoot(t *testing.T) {
	t.Parallel()
	shell, err := os.ReadFile("/bin/busybox")
	must(t, err)
	w := newWorld(t, dockertest.Import(t, []dockertest.File{
		{Name: "bin/busybox", Mode: 0o755, Content: shell}, {Name: "workspace/", Mode: 0o700},
	}, "WORKDIR /workspace"))
	for range 2 { // the second spawn has no populator
		h := w.spawn(t)
		if got := w.exec(t, h, "/bin/busybox", "stat", "-c", "%u:%g %a", "/workspace", "/data"); got != ownUser(h)+" 755\n"+ownUser(h)+" 755\n" {
			t.Errorf("workspace and data are %q", got)
		}
	}
}

func TestAnotherImageReplacesTheSeed(t *testing.T) {
	t.Parallel()
	shell, err := os.ReadFile("/bin/busybox")
	must(t, err)
	second := dockertest.Import(t, []dockertest.File{
		{Name: "bin/busybox", Mode: 0o755, Content: shell}, {Name: "workspace/second", Mode: 0o644},
	})
	w := newWorld(t, dockertest.Busybox(t))
	before := w.spawn(t)
	w.image = second
	must(t, w.x.Provision(t.Context(), w.ref, w.environment()))
	templates := 0
	for _, left := range objectsOfLedger(t, w.ref.LedgerID) {
		if strings.HasPrefix(left, "image") && !strings.Contains(left, "-relay") {
			templates++
		}
	}
	if templates != 1 {
		t.Errorf("the environment has %d template images, want 1", templates)
	}
	if got := w.exec(t, w.spawn(t), "/bin/busybox", "ls", "/workspace"); got != "config.json\nsecond\n" {
		t.Errorf("a sandbox of the second image begins with %q", got)
	}
	if got := w.exec(t, before, "ls", "/workspace"); got != "config.json\n" {
		t.Errorf("a sandbox of the first image has %q", got)
	}
}
