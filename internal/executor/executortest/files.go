package executortest

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func testFiles(t *testing.T, cfg Config) {
	w := newWorld(t, cfg)
	w.needExec(t)
	shared := w.spawn(t)
	for name, test := range map[string]func(*testing.T, *world, driver.Handle){
		"what is written can be read back":       filesRoundTrip,
		"files belong to the sandbox's user":     filesOwned,
		"existing files and links are replaced":  filesReplaced,
		"nothing is written outside":             filesEscapeIn,
		"nothing is read outside":                filesEscapeOut,
		"a link that comes first leads nowhere":  filesThroughOwnLink,
		"a race for the path leads nowhere":      filesRace,
		"what is not there is not found":         filesMissing,
		"a large file is complete":               filesLarge,
		"a transfer can be given up":             filesAbandoned,
		"/data takes files too":                  filesData,
		"a stream that is not complete says so":  filesUnreadable,
		"names need not be UTF-8":                filesOfAnyName,
		"directories are listed in pages":        fileList,
		"a single file appears whole or not":     fileWrite,
		"files and directories are removed":      fileRemove,
		"what lies on disk is counted":           fileUsage,
		"single files stay inside":               fileEscape,
		"a race for one path leads nowhere":      fileRace,
		"files that are being written are whole": filesBusy,
		"a copy outlasts a pause":                filesPaused,
		"a copy ends with its sandbox":           filesStopped,
	} {
		t.Run(name, func(t *testing.T) {
			cfg.skip(t, "Files/"+name)
			t.Parallel()
			test(t, w, shared)
		})
	}
}

// pack creates a tar stream. A header without a type is a file if it has content, a link if it has a target, otherwise
// a directory.
func pack(t *testing.T, entries ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, h := range entries {
		content := h.PAXRecords["content"]
		h.PAXRecords, h.Size = nil, int64(len(content))
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		must(t, tw.WriteHeader(&h))
		_, err := io.WriteString(tw, content)
		must(t, err)
	}
	must(t, tw.Close())
	return &b
}

func file(name, content string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, PAXRecords: map[string]string{"content": content}}
}

func symlink(name, target string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
}

// unpack describes a tar stream, one entry per line.
func unpack(t *testing.T, r io.ReadCloser) string {
	t.Helper()
	var b strings.Builder
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		content, err := io.ReadAll(tr)
		must(t, err)
		_, _ = fmt.Fprintf(&b, "%c %s %o %s%s\n", h.Typeflag, h.Name, h.Mode, h.Linkname, content)
	}
	must(t, r.Close())
	return b.String()
}

func filesRoundTrip(t *testing.T, w *world, h driver.Handle) {
	in := pack(t,
		tar.Header{Typeflag: tar.TypeDir, Name: "dir/", Mode: 0o750},
		tar.Header{
			Typeflag:   tar.TypeReg,
			Name:       "dir/run.sh",
			Mode:       0o755,
			PAXRecords: map[string]string{"content": "#!/bin/sh\necho ran\n"},
		}, file("dir/empty", ""), file("dir/a/b/c", "deep"), symlink("dir/link", "a/b/c"),
		tar.Header{Typeflag: tar.TypeLink, Name: "dir/hard", Linkname: "dir/run.sh"},
	)
	must(t, w.x.CopyTo(t.Context(), h, "/workspace/round/trip", in))
	out, err := w.x.CopyFrom(t.Context(), h, "round/trip/dir")
	must(t, err)
	want := "5 dir/ 750 \n5 dir/a/ 755 \n5 dir/a/b/ 755 \n0 dir/a/b/c 644 deep\n0 dir/empty 644 \n" +
		"0 dir/hard 755 #!/bin/sh\necho ran\n\n2 dir/link 777 a/b/c\n0 dir/run.sh 755 #!/bin/sh\necho ran\n\n"
	if got := unpack(t, out); got != want {
		t.Errorf("read back\n%s\nwant\n%s", got, want)
	}
	out, err = w.x.CopyFrom(t.Context(), h, "/workspace/round/trip/dir/link") // the link is followed
	must(t, err)
	if got := unpack(t, out); got != "0 link 644 deep\n" {
		t.Errorf("through a link: %q", got)
	}
	if got := w.sh(t, h, "/workspace/round/trip/dir/run.sh").stdout(); got != "ran\n" {
		t.Errorf("the written program says %q", got)
	}
}

func filesOwned(t *testing.T, w *world, h driver.Handle) {
	root := file("owned/by-root", "x")
	root.Uid, root.Gid, root.Mode = 0, 0, 0o4755
	must(t, w.x.CopyTo(t.Context(), h, "/workspace", pack(t, root)))
	user := w.user(t, h)
	if got := w.sh(t, h, "stat -c '%u:%g %a' /workspace/owned /workspace/owned/by-root").stdout(); got != user+
		" 755\n"+user+" 755\n" {
		t.Errorf("owners and modes are %q", got)
	}
}

func filesReplaced(t *testing.T, w *world, h driver.Handle) {
	w.sh(t, h, "mkdir /workspace/rep; cd /workspace/rep; echo precious > target; ln -s target link; echo a longer "+
		"content > old; chmod 400 old")
	must(t, w.x.CopyTo(t.Context(), h, "/workspace/rep", pack(t, file("link", "new"), file("old", "new"))))
	if got := w.sh(t, h, "cd /workspace/rep; cat target link old; [ -L link ] || echo replaced").
		stdout(); got != "precious\nnewnewreplaced\n" {
		t.Errorf("after the second write: %q", got)
	}
}

func filesEscapeIn(t *testing.T, w *world, h driver.Handle) {
	w.sh(t, h, "mkdir /workspace/in; ln -s /tmp /workspace/in/tmp; ln -s ../../tmp /workspace/in/up; ln -s /tmp/x "+
		"/workspace/in/dangling")
	device := tar.Header{Typeflag: tar.TypeChar, Name: "null", Devmajor: 1, Devminor: 3}
	for name, in := range map[string]*bytes.Buffer{
		"parent":           pack(t, file("../escaped", "x")),
		"absolute":         pack(t, file("/tmp/escaped", "x")),
		"hidden parent":    pack(t, file("a/../../escaped", "x")),
		"absolute link":    pack(t, symlink("l", "/tmp")),
		"parent link":      pack(t, symlink("l", "../..")),
		"deep parent link": pack(t, symlink("a/l", "../../..")),
		"hard link":        pack(t, tar.Header{Typeflag: tar.TypeLink, Name: "l", Linkname: "../config.json"}),
		"through a link":   pack(t, file("tmp/escaped", "x")),
		"through a second": pack(t, file("up/escaped", "x")),
		"device":           pack(t, device),
		"not a tar":        bytes.NewBufferString(strings.Repeat("this is no tar stream. ", 100)),
	} {
		if err := w.x.CopyTo(t.Context(), h, "/workspace/in", in); sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("%s: code %q, want invalid: %v", name, sandbox.CodeOf(err), err)
		}
	}
	for _, dir := range []string{"/tmp", "/", "../tmp", "/workspace/../tmp", "/workspace/in/tmp", "/workspace/in/up/x"} {
		if err := w.x.CopyTo(t.Context(), h, dir, pack(t, file("escaped", "x"))); sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("into %s: code %q, want invalid: %v", dir, sandbox.CodeOf(err), err)
		}
	}
	must(t, w.x.CopyTo(t.Context(), h, "/workspace/in", pack(t, file("dangling", "replaced"))))
	if got := w.sh(t, h, "ls /tmp; find / -xdev -name escaped 2>/dev/null; find /workspace /data -name escaped; "+
		"cat /workspace/in/dangling").stdout(); got != "replaced" {
		t.Errorf("written outside: %q", got)
	}
}

func filesEscapeOut(t *testing.T, w *world, h driver.Handle) {
	w.sh(t, h, "mkdir /workspace/out; ln -s /etc /workspace/out/etc; ln -s ../../proc/1/environ /workspace/out/environ; "+
		"echo fine > /workspace/out/fine; mkfifo /workspace/out/pipe")
	for _, path := range []string{
		"/etc/hostname", "/workspace/../etc", "/proc/self", "/workspace/out/etc", "/workspace/out/etc/hostname",
		"/workspace/out/environ",
	} {
		r, err := w.x.CopyFrom(t.Context(), h, path)
		if sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("%s: code %q, want invalid: %v", path, sandbox.CodeOf(err), err)
		}
		if err == nil {
			must(t, r.Close())
		}
	}
	r, err := w.x.CopyFrom(t.Context(), h, "/workspace/out") // links are packed as links, not followed
	must(t, err)
	want := "5 out/ 755 \n2 out/environ 777 ../../proc/1/environ\n2 out/etc 777 /etc\n0 out/fine 644 fine\n\n"
	if got := unpack(t, r); got != want {
		t.Errorf("packed\n%s\nwant\n%s", got, want)
	}
}

func filesMissing(t *testing.T, w *world, h driver.Handle) {
	_, err := w.x.CopyFrom(t.Context(), h, "/workspace/missing")
	wantError(t, err, sandbox.NotFound, sandbox.ReasonFileNotFound)
	_, err = w.x.CopyFrom(t.Context(), w.spec().Handle, "/workspace")
	wantError(t, err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
	err = w.x.CopyTo(t.Context(), w.spec().Handle, "/workspace", pack(t, file("x", "x")))
	wantError(t, err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
}

func filesLarge(t *testing.T, w *world, h driver.Handle) {
	content := strings.Repeat("0123456789abcdef", 1<<20) // 16 MiB
	must(t, w.x.CopyTo(t.Context(), h, "/workspace/large", pack(t, file("file", content))))
	r, err := w.x.CopyFrom(t.Context(), h, "/workspace/large/file")
	must(t, err)
	if got := unpack(t, r); got != "0 file 644 "+content+"\n" {
		t.Errorf("%d bytes came back of %d", len(got), len(content))
	}
	w.sh(t, h, "rm -r /workspace/large")
}

func filesAbandoned(t *testing.T, w *world, h driver.Handle) {
	w.sh(t, h, "mkdir /workspace/given-up; head -c 8000000 /dev/zero > /workspace/given-up/zeros")
	r, err := w.x.CopyFrom(t.Context(), h, "/workspace/given-up")
	must(t, err)
	_, err = io.ReadFull(r, make([]byte, 1000))
	must(t, err)
	must(t, r.Close())
	whole := pack(t, file("half", strings.Repeat("x", 5000))).Bytes()
	wantError(t, w.x.CopyTo(t.Context(), h, "/workspace/given-up", bytes.NewReader(whole[:3000])), sandbox.Invalid, "")
	wantError(t, w.x.CopyTo(t.Context(), h, "/workspace/given-up/zeros", bytes.NewReader(whole)), sandbox.Invalid, "")
	if got := w.sh(t, h, "echo fine").stdout(); got != "fine\n" {
		t.Errorf("afterwards the sandbox says %q", got)
	}
}

func filesData(t *testing.T, w *world, h driver.Handle) {
	must(t, w.x.CopyTo(t.Context(), h, "/data", pack(t, file("saved/game", "42"))))
	r, err := w.x.CopyFrom(t.Context(), h, "/data/saved/game")
	must(t, err)
	if got := unpack(t, r); got != "0 game 644 42\n" {
		t.Errorf("read back %q", got)
	}
}

func filesUnreadable(t *testing.T, w *world, h driver.Handle) {
	w.sh(t, h,
		"mkdir /workspace/locked; echo 1 > /workspace/locked/a; echo 2 > /workspace/locked/b; chmod 0 /workspace/locked/b")
	r, err := w.x.CopyFrom(t.Context(), h, "/workspace/locked")
	if err == nil {
		_, err = io.Copy(io.Discard, r)
		must(t, r.Close())
	}
	wantError(t, err, sandbox.Failed, sandbox.ReasonCopyFailed)
}
