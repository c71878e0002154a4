package servicetest

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var fileTests = []test{
	{"FilesGoInAndOut", filesGoInAndOut},
	{"FilesOutsideAreRefused", filesOutsideAreRefused},
	{"AFileIsWrittenAndRead", aFileIsWrittenAndRead},
	{"FilesAreListedAndRemoved", filesAreListedAndRemoved},
	{"FilesAreActivity", filesAreActivity},
}

// archive is a tar stream of files. Names and contents alternate.
func archive(w *world, files ...string) io.Reader {
	w.Helper()
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	for f := range slices.Chunk(files, 2) {
		err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f[0], Mode: 0o644, Size: int64(len(f[1]))})
		if err == nil {
			_, err = io.WriteString(t, f[1])
		}
		if err != nil {
			w.Fatal(err)
		}
	}
	if err := t.Close(); err != nil {
		w.Fatal(err)
	}
	return &b
}

func filesGoInAndOut(w *world) {
	w.environment()
	w.acquire(ann)
	ref := sandbox.LeaseRef{ID: annsLease, Generation: 1}
	content := strings.Repeat("0123456789\n", 50_000)
	if err := w.Service.WriteFiles(w.Context(), ref, "maps/old & new", archive(w, "one.txt", content)); err != nil {
		w.Fatal(err)
	}
	r := must(w.Service.ReadFiles(w.Context(), ref, "/workspace/maps/old & new/one.txt"))(w)
	files := tar.NewReader(r)
	h, err := files.Next()
	if err != nil {
		w.Fatal(err)
	}
	got, err := io.ReadAll(files)
	if err != nil || h.Name != "one.txt" || string(got) != content {
		w.Errorf("read %s with %d bytes, wrote %d: %v", h.Name, len(got), len(content), err)
	}
	if err := r.Close(); err != nil {
		w.Error(err)
	}
}

func filesOutsideAreRefused(w *world) {
	w.environment()
	w.acquire(ann)
	ref := sandbox.LeaseRef{ID: annsLease}
	for _, path := range []string{"/etc/passwd", "/workspace/../etc", "../x", "/", "/workspacex", "/workspace/a\x00b"} {
		_, err := w.Service.ReadFiles(w.Context(), ref, path)
		w.wantError(err, sandbox.Invalid, "", "path")
		w.wantError(w.Service.WriteFiles(w.Context(), ref, path, archive(w, "a", "b")), sandbox.Invalid, "", "dir")
	}
	_, err := w.Service.ReadFiles(w.Context(), ref, "/workspace/none")
	w.wantError(err, sandbox.NotFound, sandbox.ReasonFileNotFound)
	w.wantError(w.Service.WriteFiles(w.Context(), ref, "/workspace", strings.NewReader(strings.Repeat("no tar", 200))),
		sandbox.Invalid, "")
	for _, path := range []string{"/etc/passwd", "/workspace/../etc"} {
		_, err := w.Service.ReadFile(w.Context(), ref, sandbox.FileRead{Path: path, MaxBytes: -1})
		w.wantError(err, sandbox.Invalid, "", "path", "max_bytes")
		_, err = w.Service.StatFile(w.Context(), ref, path)
		w.wantError(err, sandbox.Invalid, "", "path")
		_, err = w.Service.ListFiles(w.Context(), ref, sandbox.FileQuery{Path: path, Limit: 1001})
		w.wantError(err, sandbox.Invalid, "", "path", "limit")
		err = w.Service.WriteFile(w.Context(), ref, sandbox.FileWrite{Path: path, MaxBytes: 1<<30 + 1},
			strings.NewReader("x"))
		w.wantError(err, sandbox.Invalid, "", "path", "max_bytes")
		w.wantError(w.Service.RemoveFile(w.Context(), ref, sandbox.FileRemoval{Path: path}), sandbox.Invalid, "", "path")
	}
	for _, root := range sandbox.Roots {
		w.wantError(w.Service.RemoveFile(w.Context(), ref, sandbox.FileRemoval{Path: root, Recursive: true}),
			sandbox.Invalid, "", "path")
		w.wantError(w.Service.WriteFile(w.Context(), ref, sandbox.FileWrite{Path: root}, strings.NewReader("x")),
			sandbox.Invalid, "", "path")
	}
}

// write puts a file into ann's sandbox.
func (w *world) write(path, content string, mode fs.FileMode) {
	w.Helper()
	if err := w.Service.WriteFile(w.Context(), sandbox.LeaseRef{ID: annsLease}, sandbox.FileWrite{Path: path, Mode: mode},
		strings.NewReader(content)); err != nil {
		w.Fatal(err)
	}
}

func (w *world) content(path string) string {
	w.Helper()
	f := must(w.Service.ReadFile(w.Context(), sandbox.LeaseRef{ID: annsLease}, sandbox.FileRead{Path: path}))(w)
	content, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil || f.Size != int64(len(content)) {
		w.Errorf("%s has %d bytes, of which %d came: %v", path, f.Size, len(content), err)
	}
	return string(content)
}

func aFileIsWrittenAndRead(w *world) {
	w.environment()
	w.acquire(ann)
	ref := sandbox.LeaseRef{ID: annsLease}
	for _, content := range []string{"", "one line\n", strings.Repeat("0123456789\xff", 50_000)} {
		w.write("maps/old & new/two\nlines \xfe", content, 0o640)
		if got := w.content("/workspace/maps/old & new/two\nlines \xfe"); got != content {
			w.Errorf("%d bytes came back as %d others", len(content), len(got))
		}
	}
	info := must(w.Service.StatFile(w.Context(), ref, "maps/old & new/two\nlines \xfe"))(w)
	if info.Name != "two\nlines \xfe" || info.Type != sandbox.FileRegular || info.Size != 550_000 || info.Mode != 0o640 ||
		info.ModifiedAt.IsZero() {
		w.Errorf("it is described as %+v", info)
	}
	err := w.Service.WriteFile(w.Context(), ref, sandbox.FileWrite{Path: "maps/old & new/two\nlines \xfe", MaxBytes: 9},
		strings.NewReader("ten bytes!"))
	w.wantError(err, sandbox.Invalid, sandbox.ReasonResourceLimitExceeded)
	w.wantError(w.Service.WriteFile(w.Context(), ref, sandbox.FileWrite{Path: "maps"}, strings.NewReader("x")),
		sandbox.Invalid, "")
	_, err = w.Service.ReadFile(w.Context(), ref, sandbox.FileRead{Path: "maps/old & new/two\nlines \xfe", MaxBytes: 549_999})
	w.wantError(err, sandbox.Invalid, sandbox.ReasonResourceLimitExceeded)
	_, err = w.Service.ReadFile(w.Context(), ref, sandbox.FileRead{Path: "none"})
	w.wantError(err, sandbox.NotFound, sandbox.ReasonFileNotFound)
	if got := w.content("maps/old & new/two\nlines \xfe"); len(got) != 550_000 {
		w.Errorf("after writes that failed it has %d bytes", len(got))
	}
}

func filesAreListedAndRemoved(w *world) {
	w.environment()
	w.acquire(ann)
	ref := sandbox.LeaseRef{ID: annsLease}
	for _, path := range []string{"dir/b", "dir/a", "dir/\xff", "dir/sub/file"} {
		w.write(path, "12345", 0)
	}
	list := func(after string, limit int) string {
		w.Helper()
		var b bytes.Buffer
		for _, f := range must(w.Service.ListFiles(w.Context(), ref,
			sandbox.FileQuery{Path: "dir", After: after, Limit: limit}))(w) {
			fmt.Fprintf(&b, "%s %s %d %o|", f.Name, f.Type, f.Size, f.Mode)
		}
		return b.String()
	}
	if got, want := list("", 0), "a file 5 644|b file 5 644|sub directory 0 755|\xff file 5 644|"; got != want {
		w.Errorf("listed %q, want %q", got, want)
	}
	if got, want := list("a", 2), "b file 5 644|sub directory 0 755|"; got != want {
		w.Errorf("the second page is %q, want %q", got, want)
	}
	_, err := w.Service.ListFiles(w.Context(), ref, sandbox.FileQuery{Path: "dir/a"})
	w.wantError(err, sandbox.Invalid, "")
	_, err = w.Service.ListFiles(w.Context(), ref, sandbox.FileQuery{Path: "none"})
	w.wantError(err, sandbox.NotFound, sandbox.ReasonFileNotFound)

	remove := func(path string, recursive bool) error {
		return w.Service.RemoveFile(w.Context(), ref, sandbox.FileRemoval{Path: path, Recursive: recursive})
	}
	w.wantError(remove("dir/sub", false), sandbox.Conflict, sandbox.ReasonWriteFailed)
	for _, err := range []error{remove("dir/\xff", false), remove("dir/sub", true)} {
		if err != nil {
			w.Error(err)
		}
	}
	w.wantError(remove("dir/sub", true), sandbox.NotFound, sandbox.ReasonFileNotFound)
	if got, want := list("", 0), "a file 5 644|b file 5 644|"; got != want {
		w.Errorf("afterwards it lists %q, want %q", got, want)
	}
}

// filesAreActivity: transfers of single files wake a sandbox and renew its lease, as commands do.
func filesAreActivity(w *world) {
	idle := sandbox.Duration(5 * time.Minute)
	w.environment(func(p *sandbox.PutEnvironment) { p.SleepAfter = &idle })
	w.acquire(ann)
	ref := sandbox.LeaseRef{ID: annsLease}
	w.write("f", "x", 0)
	for name, use := range map[string]func() error{
		"read": func() error { w.content("f"); return nil },
		"stat": func() error { _, err := w.Service.StatFile(w.Context(), ref, "f"); return err },
		"list": func() error {
			_, err := w.Service.ListFiles(w.Context(), ref, sandbox.FileQuery{Path: "/data"})
			return err
		},
		"write": func() error { w.write("f", "y", 0); return nil },
		"remove": func() error {
			w.write("g", "y", 0)
			return w.Service.RemoveFile(w.Context(), ref, sandbox.FileRemoval{Path: "g"})
		},
	} {
		w.Advance(6 * time.Minute)
		if l := w.lease(ann); l.Phase != sandbox.PhaseAsleep {
			w.Fatalf("before %s it is %s", name, l.Phase)
		}
		if err := use(); err != nil {
			w.Fatalf("%s: %v", name, err)
		}
		if l := w.lease(ann); l.Phase != sandbox.PhaseAwake || !l.LastActivity.Equal(w.Now()) {
			w.Errorf("after %s it is %s, last active at %s, now is %s", name, l.Phase, l.LastActivity, w.Now())
		}
	}
	_, err := w.Service.StatFile(w.Context(), sandbox.LeaseRef{ID: annsLease, Generation: 9}, "f")
	w.wantError(err, sandbox.Conflict, sandbox.ReasonOtherGeneration)
}
