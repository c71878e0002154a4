package executortest

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// filesThroughOwnLink: archives contain the link that they write through. Links within the directory are fine. Nothing
// may end up outside of it.
func filesThroughOwnLink(t *testing.T, w *world, h driver.Handle) {
	w.sh(t, h, "mkdir -p /workspace/own/target; ln -s /tmp /workspace/own/gate; echo victim > /workspace/victim; ln -s "+
		"../victim /workspace/own/steps")
	hard := func(name, target string) tar.Header {
		return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target}
	}
	for name, row := range map[string]struct {
		in   *bytes.Buffer
		want sandbox.Code
	}{
		"a link within": {pack(t, symlink("l", "target"), file("l/inside-7200", "x")), ""},
		"a link to a link that leads out": {pack(t, symlink("m", "gate"), file("m/escaped-7200", "x")),
			sandbox.Invalid},
		"a hard link to a link that leads out": {pack(t, hard("n", "gate"), file("n/escaped-7200", "x")), sandbox.Invalid},
		"a hard link to a link, written to":    {pack(t, hard("s", "steps"), file("s", "replaced")), ""},
		"a hard link through a link":           {pack(t, hard("p", "gate/passwd")), sandbox.Invalid},
		"a file, then a link in its place": {
			pack(t, file("q", "x"), symlink("q", "../../.."), file("q/escaped-7200", "x")), sandbox.Invalid,
		},
		"a directory, then a link in its place": {
			pack(t, tar.Header{Typeflag: tar.TypeDir, Name: "d/", Mode: 0o755}, symlink("d", "gate")), sandbox.Invalid,
		},
		"a pipe": {pack(t, tar.Header{Typeflag: tar.TypeFifo, Name: "pipe"}), sandbox.Invalid},
		"a block device": {pack(t, tar.Header{Typeflag: tar.TypeBlock, Name: "sda", Devmajor: 8}),
			sandbox.Invalid},
	} {
		if err := w.x.CopyTo(t.Context(), h, "/workspace/own", row.in); sandbox.CodeOf(err) != row.want {
			t.Errorf("%s: code %q, want %q: %v", name, sandbox.CodeOf(err), row.want, err)
		}
	}
	w.wantOutput(t, h, "ls /tmp | grep 7200; find / -name '*-7200' 2>/dev/null; cat /workspace/victim; find "+
		"/workspace/own -type b -o -type c -o -type p", "/workspace/own/target/inside-7200\nvictim\n")
}

// filesRace: sandbox code keeps swapping a directory for a link to the outside, while files are written and read below
// it.
func filesRace(t *testing.T, w *world, _ driver.Handle) {
	h := w.spawn(t)
	w.sh(t, h, "mkdir -p /workspace/race/a && ln -s /tmp /workspace/race/b && cd /workspace/race && (while :; do mv a "+
		"c; mv b a; mv a b; mv c a; done) >/dev/null 2>&1 &")
	refused, taken := 0, 0
	for i := range 30 {
		err := w.x.CopyTo(t.Context(), h, "/workspace/race",
			pack(t, file("a/1", "x"), file("a/2", "x"), file("a/3", "x"), file("a/4", "x")))
		switch sandbox.CodeOf(err) {
		case "":
			taken++
		case sandbox.Invalid, sandbox.Failed, sandbox.NotFound, sandbox.Conflict:
			refused++
		default:
			t.Errorf("copy %d: %v", i, err)
		}
	}
	// The sandbox's own mv may move a whole directory there, if a copy has created one at its target.
	w.wantOutput(t, h, "ls /tmp | grep -x '[1-4]'; true", "")
	t.Logf("%d copies were taken and %d refused", taken, refused)
}

// sparse returns an archive with one file that consists of a hole, in GNU tar's format.
func sparse(name string, size int64) io.Reader {
	var records strings.Builder
	for _, r := range []string{
		"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=" + name, fmt.Sprintf("GNU.sparse.realsize=%d", size),
	} {
		n := len(r) + 3 // the number of digits and the two separators
		for len(fmt.Sprint(n))+len(r)+2 != n {
			n++
		}
		fmt.Fprintf(&records, "%d %s\n", n, r)
	}
	var out bytes.Buffer
	block(&out, "PaxHeaders/"+name, tar.TypeXHeader, records.String())
	layout := fmt.Sprintf("1\n%d\n0\n", size)
	block(&out, "GNUSparseFile.0/"+name, tar.TypeReg, layout+strings.Repeat("\x00", 512-len(layout)))
	out.Write(make([]byte, 1024))
	return &out
}

// block writes one raw entry, which package tar rejects.
func block(out *bytes.Buffer, name string, kind byte, content string) {
	h := make([]byte, 512)
	copy(h, name)
	copy(h[100:], "0000644\x000001750\x000001750\x00")
	copy(h[124:], fmt.Sprintf("%011o\x00%011o\x00        ", len(content), 0))
	h[156] = kind
	copy(h[257:], "ustar\x0000")
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	out.Write(h)
	out.WriteString(content)
	out.Write(make([]byte, (512-len(content)%512)%512))
}
