package executortest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// write writes a file to a path as a user gives it.
func (w *world) write(t *testing.T, h driver.Handle, path, content string, mode fs.FileMode) error {
	t.Helper()
	f, err := sandbox.FileWrite{Path: path, Mode: mode}.Normalize()
	must(t, err)
	return w.x.WriteFile(t.Context(), h, f, strings.NewReader(content))
}

// list describes a directory, one name per line, and fails on impossible times.
func (w *world) list(t *testing.T, h driver.Handle, q sandbox.FileQuery) string {
	t.Helper()
	q, err := q.Normalize()
	must(t, err)
	files, err := w.x.ListFiles(t.Context(), h, q)
	must(t, err)
	var b strings.Builder
	for _, f := range files {
		if f.ModifiedAt.Year() < 2020 {
			t.Errorf("%s was modified at %s", f.Name, f.ModifiedAt)
		}
		fmt.Fprintf(&b, "%s %s %d %o %s\n", f.Name, f.Type, f.Size, f.Mode, f.Target)
	}
	return b.String()
}

func fileList(t *testing.T, w *world, h driver.Handle) {
	w.sh(t, h, `mkdir -p /workspace/ls/sub /data/ls; cd /workspace/ls; printf 12345 > b; chmod 640 b; ln -s /etc/passwd c; mkfifo d; touch 'a b' .hidden "$(printf 'z\377')"; chmod 644 .hidden 'a b'`)
	all := ".hidden file 0 644 \na b file 0 644 \nb file 5 640 \nc symlink 0 777 /etc/passwd\nd other 0 644 \n" +
		"sub directory 0 755 \nz\xff file 0 644 \n"
	if got := w.list(t, h, sandbox.FileQuery{Path: "ls"}); got != all {
		t.Errorf("listed\n%q\nwant\n%q", got, all)
	}
	if got, want := w.list(t, h,
		sandbox.FileQuery{Path: "ls", After: "a b", Limit: 2}), "b file 5 640 \nc symlink 0 777 /etc/passwd\n"; got != want {
		t.Errorf("the page after the second name is\n%q\nwant\n%q", got, want)
	}
	if got := w.list(t, h, sandbox.FileQuery{Path: "/data/ls"}); got != "" {
		t.Errorf("an empty directory holds %q", got)
	}
	if got := w.list(t, h, sandbox.FileQuery{Path: "/workspace", After: "l", Limit: 1}); !strings.HasPrefix(got, "l") ||
		strings.Count(got, "\n") != 1 {
		t.Errorf("the first name of the workspace after l is %q", got)
	}
	for path, want := range map[string]string{
		"/workspace/ls/b":     "b file 5 640 ",
		"/workspace/ls/c":     "c symlink 0 777 /etc/passwd",
		"/workspace/ls/sub":   "sub directory 0 755 ",
		"/workspace/ls/z\xff": "z\xff file 0 644 ",
		"/workspace":          "workspace directory 0 755 ",
	} {
		f, err := w.x.StatFile(t.Context(), h, path)
		must(t, err)
		if got := fmt.Sprintf("%s %s %d %o %s", f.Name, f.Type, f.Size, f.Mode, f.Target); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	_, err := w.x.ListFiles(t.Context(), h, sandbox.FileQuery{Path: "/workspace/ls/b", Limit: 1})
	wantError(t, err, sandbox.Invalid, "")
	_, err = w.x.ListFiles(t.Context(), h, sandbox.FileQuery{Path: "/workspace/ls/none", Limit: 1})
	wantError(t, err, sandbox.NotFound, sandbox.ReasonFileNotFound)
	_, err = w.x.StatFile(t.Context(), h, "/workspace/ls/none")
	wantError(t, err, sandbox.NotFound, sandbox.ReasonFileNotFound)
	_, err = w.x.StatFile(t.Context(), w.spec().Handle, "/workspace")
	wantError(t, err, sandbox.NotFound, sandbox.ReasonSandboxNotFound)
}

func fileWrite(t *testing.T, w *world, h driver.Handle) {
	must(t, w.write(t, h, "one/deep/run.sh", "#!/bin/sh\necho ran\n", 0o750))
	w.wantOutput(t, h, "one/deep/run.sh; stat -c '%u:%g %a' one/deep/run.sh", "ran\n"+w.user(t, h)+" 750\n")
	large := strings.Repeat("0123456789abcdef", 1<<18)
	must(t, w.write(t, h, "one/large", large, 0))
	w.wantOutput(t, h, "wc -c < one/large; stat -c %a one/large", "4194304\n644\n")
	must(t, w.write(t, h, "one/empty", "", 0o400))
	w.wantOutput(t, h, "wc -c < one/empty", "0\n")

	w.sh(t, h, "cd one; echo precious > target; ln -s target link; ln -s /etc/passwd out; chmod 400 target; mkdir dir")
	must(t, w.write(t, h, "one/link", "new", 0))
	must(t, w.write(t, h, "one/out", "new", 0))
	must(t, w.write(t, h, "one/\xff", "any name", 0))
	w.wantOutput(t, h, "cd one; cat target link out; cat \"$(printf '\\377')\"; [ -L link ] || echo replaced",
		"precious\nnewnewany namereplaced\n")
	wantError(t, w.write(t, h, "one/dir", "x", 0), sandbox.Invalid, "")
	wantError(t, w.write(t, h, "one/target/below", "x", 0), sandbox.Invalid, "")
	wantError(t, w.write(t, h, "one/"+strings.Repeat("n", 256), "x", 0), sandbox.Invalid, "")

	broken := sandbox.FileWrite{Path: "/workspace/one/large", Mode: 0o644}
	why := errors.New("the wire was cut")
	err := w.x.WriteFile(t.Context(), h, broken, io.MultiReader(strings.NewReader(large[:1<<20]), iotest.ErrReader(why)))
	if wantError(t, err, sandbox.Failed, sandbox.ReasonWriteFailed); !errors.Is(err, why) {
		t.Errorf("the error hides its cause: %v", err)
	}
	limit := sandbox.Errorf(sandbox.Invalid, "too large").WithReason(sandbox.ReasonResourceLimitExceeded)
	err = w.x.WriteFile(t.Context(), h, broken, io.MultiReader(strings.NewReader("x"), iotest.ErrReader(limit)))
	wantError(t, err, sandbox.Invalid, sandbox.ReasonResourceLimitExceeded)
	w.wantOutput(t, h, "wc -c < one/large; ls -A one | grep unfinished; true", "4194304\n")
}

func fileRemove(t *testing.T, w *world, h driver.Handle) {
	remove := func(path string, recursive bool) error {
		return w.x.RemoveFile(t.Context(), h, sandbox.FileRemoval{Path: path, Recursive: recursive})
	}
	w.sh(t, h, "mkdir -p rm/full/sub rm/empty rm/kept; touch rm/f rm/full/sub/f rm/kept/f; ln -s kept rm/link; ln -s "+
		"../kept rm/full/link")
	must(t, remove("/workspace/rm/f", false))
	must(t, remove("/workspace/rm/empty", false))
	wantError(t, remove("/workspace/rm/full", false), sandbox.Conflict, sandbox.ReasonWriteFailed)
	must(t, remove("/workspace/rm/full", true))
	must(t, remove("/workspace/rm/link", true)) // removes the link, not its target
	w.sh(t, h, "mkdir -p rm/locked/sub; touch rm/locked/sub/f; chmod 500 rm/locked/sub; chmod 600 rm/locked")
	must(t, remove("/workspace/rm/locked", true))
	w.wantOutput(t, h, "find rm | sort", "rm\nrm/kept\nrm/kept/f\n")
	wantError(t, remove("/workspace/rm/f", false), sandbox.NotFound, sandbox.ReasonFileNotFound)
	wantError(t, remove("/workspace/rm/f", true), sandbox.NotFound, sandbox.ReasonFileNotFound)
	wantError(t, remove("/workspace", true), sandbox.Invalid, "")
}

// fileEscape: nothing that a sandbox prepares leads an operation on one path outside.
func fileEscape(t *testing.T, w *world, _ driver.Handle) {
	h := w.spawn(t)
	w.sh(t, h, "mkdir -p gates; cd gates; echo safe > /tmp/mark-7300; ln -s /tmp abs; ln -s ../../tmp up; ln -s abs "+
		"again; ln -s loop loop; ln -s /proc/self/cwd/../tmp magic; ln -s /data data")
	for _, gate := range []string{"abs", "up", "again", "loop", "magic", "data"} {
		dir := "/workspace/gates/" + gate
		_, stat := w.x.StatFile(t.Context(), h, dir+"/mark-7300")
		_, list := w.x.ListFiles(t.Context(), h, sandbox.FileQuery{Path: dir, Limit: 9})
		for what, err := range map[string]error{
			"stat":        stat,
			"list":        list,
			"write":       w.write(t, h, dir+"/escaped-7300", "x", 0),
			"write below": w.write(t, h, dir+"/new/escaped-7300", "x", 0),
			"remove":      w.x.RemoveFile(t.Context(), h, sandbox.FileRemoval{Path: dir + "/mark-7300"}),
		} {
			if sandbox.CodeOf(err) != sandbox.Invalid {
				t.Errorf("%s through %s: code %q, want invalid: %v", what, gate, sandbox.CodeOf(err), err)
			}
		}
	}
	for _, path := range []string{"/tmp/x", "/workspace/../tmp/x", "/", "/workspacex"} {
		_, err := w.x.StatFile(t.Context(), h, path)
		wantError(t, err, sandbox.Invalid, "")
		wantError(t, w.x.WriteFile(t.Context(), h, sandbox.FileWrite{Path: path}, strings.NewReader("x")),
			sandbox.Invalid, "")
		wantError(t, w.x.RemoveFile(t.Context(), h, sandbox.FileRemoval{Path: path, Recursive: true}), sandbox.Invalid, "")
	}
	w.wantOutput(t, h, "find / -name '*-7300' 2>/dev/null; cat /tmp/mark-7300", "/tmp/mark-7300\nsafe\n")
}

// fileRace is filesRace for operations on one path. A directory keeps being swapped for a link to the outside. Files
// outside are neither changed nor seen.
func fileRace(t *testing.T, w *world, _ driver.Handle) {
	h := w.spawn(t)
	w.sh(t, h, "echo outside > /tmp/1; mkdir -p race/a && echo within > race/a/1; ln -s /tmp race/b && cd race && "+
		"(while :; do mv -T a c; mv -T b a; mv -T a b; mv -T c a; done) >/dev/null 2>&1 &")
	codes := map[sandbox.Code]int{}
	note := func(err error) {
		t.Helper()
		switch code := sandbox.CodeOf(err); code {
		case "", sandbox.Invalid, sandbox.NotFound, sandbox.Failed, sandbox.Conflict:
			codes[code]++
		default:
			t.Errorf("a race ended with %v", err)
		}
	}
	for range 12 {
		note(w.write(t, h, "race/a/1", "within", 0))
		note(w.write(t, h, "race/a/new", "within", 0))
		note(w.x.RemoveFile(t.Context(), h, sandbox.FileRemoval{Path: "/workspace/race/a/1"}))
		f, err := w.x.StatFile(t.Context(), h, "/workspace/race/a/1")
		if note(err); err == nil && f.Size == int64(len("outside\n")) {
			t.Error("a file outside was described")
		}
		r, err := w.x.CopyFrom(t.Context(), h, "/workspace/race/a/1")
		if note(err); err == nil {
			if got := unpack(t, r); strings.Contains(got, "outside") {
				t.Errorf("a file outside was read: %q", got)
			}
		}
	}
	w.wantOutput(t, h, "cat /tmp/1; ls /tmp", "outside\n1\n")
	t.Logf("the operations ended with %v", codes)
}

func fileUsage(t *testing.T, w *world, _ driver.Handle) {
	h := w.spawn(t)
	before, err := w.x.DiskUsage(t.Context(), h)
	must(t, err)
	w.sh(t, h, "mkdir /data/d /workspace/locked; head -c 1000000 /dev/zero > /data/d/f; truncate -s 1G /data/hole; "+
		"chmod 0 /workspace/locked; ln -s /etc /workspace/etc; ln -s . /workspace/loop")
	after, err := w.x.DiskUsage(t.Context(), h)
	must(t, err)
	if grown := after.Bytes - before.Bytes; grown < 1_000_000 || grown > 1_200_000 ||
		after.Files-before.Files != 6 || !after.Complete {
		t.Errorf("after 1 MB in 6 files there are %+v, before %+v", after, before)
	}
}
