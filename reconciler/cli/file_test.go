package cli_test

import (
	"archive/tar"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
)

func TestFilesAreWrittenListedReadAndDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game(time.Second)
	files := func(stdin string, args ...string) result {
		return run(t.Context(), stdin, append([]string{"file", "--url", w.url, "--token-file", w.tokenFile}, args...)...)
	}
	const ann = "did:plc:ann::catan-7"
	w.want(files("five!", "write", ann, "maps/one", "--mode", "0640"), exit.Done)
	w.want(files("", "stat", ann, "/workspace/maps/one"), exit.Done, "0640", "file", "5", "one")
	w.want(files("", "list", ann, "maps"), exit.Done, "NAME", "one")
	w.want(files("", "list", ann, "maps", "-o", "json"), exit.Done, `"mode": "0640"`)
	if r := files("", "read", ann, "maps/one"); r != (result{0, "five!", ""}) {
		t.Errorf("reading gave %+v", r)
	}
	download := files("", "download", ann, "maps")
	if h, err := tar.NewReader(strings.NewReader(download.out)).Next(); download.code != exit.Done || err != nil ||
		h.Name != "maps/one" {
		t.Errorf("the download ended with %d and begins with %+v: %v", download.code, h, err)
	}
	w.want(files(download.out, "upload", ann, "copy"), exit.Done)
	w.want(files("", "read", ann, "copy/maps/one"), exit.Done, "five!")
	w.want(files("", "delete", ann, "maps"), exit.Failed, "not empty")
	w.want(files("", "delete", "-r", ann, "maps"), exit.Done)
	w.want(files("", "stat", ann, "maps/one"), exit.Failed, "maps/one")

	w.want(files("x", "write", ann, "/etc/passwd"), exit.Usage, "path")
	w.want(files("x", "write", ann, "a", "--mode", "rwx"), exit.Usage, "mode")
	w.want(files("four", "write", ann, "a", "--max-bytes", "3"), exit.Usage, "limit of 3")
	w.want(files("", "list", ann), exit.Usage, "2 arguments")
	w.want(files("", "move"), exit.Usage, "move")
	w.want(files("", "list", ann, "copy", "--generation", "9"), exit.Failed, "generation")
}
