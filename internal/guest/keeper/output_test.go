//go:build linux

package keeper_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/keeper"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/output"
)

// numbered returns n bytes, in lines that each have their number.
func numbered(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%015d\n", i)
	}
	return b.String()[:n]
}

// diskFiles returns the files that process 1 has on the sandbox's disk.
func (b *box) diskFiles(t *testing.T) (files []string) {
	t.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%s/fd/*", b.docker(t, "inspect", "--format", "{{.State.Pid}}", b.name)))
	if err != nil || len(fds) == 0 {
		t.Fatalf("process 1 has no files: %v", err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "/workspace") { // others may be closed
			files = append(files, to)
		}
	}
	return files
}

// TestOutputOfAnySizeIsDeliveredAndKept writes output that ends before, at and after each bound: of its beginning, of
// what is kept, and of the window beyond that.
func TestOutputOfAnySizeIsDeliveredAndKept(t *testing.T) {
	b := start(t, options{})
	for _, size := range []int{
		0, 1, link.Head - 1, link.Head, link.Head + 1, 1 << 20,
		output.DiskLimit - 1, output.DiskLimit, output.DiskLimit + 1, output.DiskLimit + keeper.Window + link.Head + 1,
	} {
		id, want := fmt.Sprintf("%d bytes", size), numbered(size)
		// The input goes to stdout and, beside it, to stderr.
		got, errGot, res := b.exec(t, channel.Request{ID: id, Exec: line("tee /dev/stderr")}, want+"\n")
		want += "\n"
		if got != want || errGot != want || res.ExitCode != 0 || res.Dropped != (len(want) > output.DiskLimit) {
			t.Fatalf("%s come back as %d and %d: %+v", id, len(got), len(errGot), res)
		}
		kept := want[:min(len(want), output.DiskLimit)]
		for _, from := range []int{0, link.Head - 1, link.Head, link.Head + 1, len(kept) - 1} {
			if from < 0 || from >= len(kept) {
				continue
			}
			var out, errOut strings.Builder
			follow := channel.Request{ID: id, Op: channel.OpFollow, Follow: &channel.Follow{
				StdoutOffset: int64(from), StderrOffset: int64(from)}}
			_, err := b.call(follow, channel.Streams{Stdout: &out, Stderr: &errOut})
			if err != nil || out.String() != kept[from:] || errOut.String() != kept[from:] {
				t.Errorf("of %s, %d and %d bytes follow byte %d of %d: %v", id, out.Len(), errOut.Len(), from, len(kept), err)
			}
		}
	}
}

// TestShortOutputNeedsNoFileOnDisk looks at the files of process 1. A file for each command would make commands slower
// and slower: ext4 does not reuse an inode within a minute of its deletion, and looks at each of them.
func TestShortOutputNeedsNoFileOnDisk(t *testing.T) {
	b := start(t, options{})
	for range 20 {
		if out, errOut, res := b.run(t, "echo out; echo err >&2"); out != "out\n" || errOut != "err\n" || res.ExitCode != 0 {
			t.Fatalf("%q, %q, %+v", out, errOut, res)
		}
	}
	if files := b.diskFiles(t); len(files) != 0 {
		t.Errorf("short output is in %v", files)
	}
	if out, _, res := b.run(t, fmt.Sprintf("head -c %d /dev/zero", link.Head+1)); len(out) != link.Head+1 {
		t.Fatalf("%d bytes: %+v", len(out), res)
	}
	if files := b.diskFiles(t); len(files) != 1 {
		t.Errorf("the rest of one stream is in %v", files)
	}
}
