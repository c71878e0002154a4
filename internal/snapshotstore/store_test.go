package snapshotstore_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshotstore"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const megabyte = 1 << 20

// buckets opens a new bucket of each kind that the contract holds for.
var buckets = map[string]func(t *testing.T) *snapshotstore.Store{
	"file": func(t *testing.T) *snapshotstore.Store {
		return open(t, "file://"+filepath.ToSlash(t.TempDir())+"/new/state")
	},
	"s3":  func(t *testing.T) *snapshotstore.Store { return open(t, newService(t).url) },
	"mem": func(t *testing.T) *snapshotstore.Store { return open(t, "mem://") },
}

func open(t *testing.T, url string) *snapshotstore.Store {
	t.Helper()
	s, err := snapshotstore.Open(t.Context(), url)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func TestContract(t *testing.T) {
	t.Parallel()
	for kind, bucket := range buckets {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for name, test := range map[string]func(*testing.T, *snapshotstore.Store){
				"what was saved is loaded":               savedIsLoaded,
				"an archive can be saved again":          savedAgain,
				"what was deleted is not found":          deletedIsNotFound,
				"a save that fails leaves nothing":       failedLeavesNothing,
				"a damaged archive is not handed out":    damagedIsRefused,
				"an archive of nothing is an archive":    emptyIsKept,
				"the error of the stream keeps its code": streamErrorIsKept,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, bucket(t))
				})
			}
		})
	}
}

func savedIsLoaded(t *testing.T, s *snapshotstore.Store) {
	at := time.Unix(1700000000, 0)
	a := save(t, s, "agents/a/1",
		tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755, Uid: 1000},
		tar.Header{Name: "./memory/", Typeflag: tar.TypeDir, Mode: 0o750, ModTime: at},
		content("./memory/day.md", 0o640, "it rained"),
		tar.Header{Name: "./hard", Typeflag: tar.TypeLink, Linkname: "./memory/day.md"},
		tar.Header{Name: "./link", Typeflag: tar.TypeSymlink, Linkname: "memory/day.md"},
		tar.Header{Name: "./pipe", Typeflag: tar.TypeFifo})
	if a.Object != "agents/a/1" || a.Files != 3 || a.Skipped != 1 || a.Bytes == 0 || a.Size%512 != 0 ||
		len(a.SHA256) != 64 {
		t.Errorf("the archive is %+v", a)
	}
	want := "5 memory/ 750  2023\n0 memory/day.md 640 it rained 1970\n1 hard 0 memory/day.md 1970\n" +
		"2 link 0 memory/day.md 1970\n"
	if got := load(t, s, a); got != want {
		t.Errorf("loaded\n%s\nwant\n%s", got, want)
	}
}

func savedAgain(t *testing.T, s *snapshotstore.Store) {
	save(t, s, "x/1", content("old", 0o644, "old"))
	a := save(t, s, "x/1", content("new", 0o644, "new"))
	if got := load(t, s, a); got != "0 new 644 new 1970\n" {
		t.Errorf("loaded %q", got)
	}
}

func deletedIsNotFound(t *testing.T, s *snapshotstore.Store) {
	a := save(t, s, "x/1", content("f", 0o644, "x"))
	for range 2 {
		must(t, s.Delete(t.Context(), a.Object))
	}
	_, err := s.Load(t.Context(), a)
	wantError(t, err, sandbox.NotFound, "")
	if !strings.Contains(err.Error(), "x/1") {
		t.Errorf("the error does not name the object: %v", err)
	}
}

func failedLeavesNothing(t *testing.T, s *snapshotstore.Store) {
	whole := pack(t, content("f", 0o644, strings.Repeat("x", megabyte)))
	_, err := s.Save(t.Context(), "x/large", bytes.NewReader(whole), megabyte)
	wantError(t, err, sandbox.Invalid, sandbox.ReasonResourceLimitExceeded)
	_, err = s.Save(t.Context(), "x/torn", bytes.NewReader(whole[:megabyte/2]), 2*megabyte)
	wantError(t, err, sandbox.Invalid, sandbox.ReasonCopyFailed)
	_, err = s.Save(t.Context(), "x/endless", bytes.NewReader(whole[:len(whole)-1024]), 2*megabyte)
	wantError(t, err, sandbox.Invalid, sandbox.ReasonCopyFailed)
	for _, object := range []string{"x/large", "x/torn", "x/endless"} {
		_, err := s.Load(t.Context(), snapshotstore.Archive{Object: object})
		wantError(t, err, sandbox.NotFound, "")
	}
}

func damagedIsRefused(t *testing.T, s *snapshotstore.Store) {
	a := save(t, s, "x/1", content("f", 0o644, "precious"))
	other := save(t, s, "x/2", content("f", 0o644, "forged!!"))
	forged := a
	forged.Object = other.Object
	_, err := s.Load(t.Context(), forged)
	wantError(t, err, sandbox.Failed, sandbox.ReasonCopyFailed)
	short := a
	short.Size -= 512
	r, err := s.Load(t.Context(), short)
	must(t, err)
	_, err = io.Copy(io.Discard, r)
	wantError(t, err, sandbox.Failed, sandbox.ReasonCopyFailed)
	must(t, r.Close())
}

func emptyIsKept(t *testing.T, s *snapshotstore.Store) {
	if got := load(t, s, save(t, s, "x/1")); got != "" {
		t.Errorf("loaded %q", got)
	}
}

func streamErrorIsKept(t *testing.T, s *snapshotstore.Store) {
	cause := sandbox.Errorf(sandbox.Conflict, "it was woken").WithReason(sandbox.ReasonInvalidState)
	whole := pack(t, content("f", 0o644, "x"))
	_, err := s.Save(t.Context(), "x/1", io.MultiReader(bytes.NewReader(whole), broken{cause}), megabyte)
	wantError(t, err, sandbox.Conflict, sandbox.ReasonInvalidState)
}

func TestAnArchiveInADirectoryIsOnlyItsOwners(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	s := open(t, "file://"+dir)
	save(t, s, "agents/a/1", content("f", 0o644, "x"))
	var names []string
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		must(t, err)
		info, err := d.Info()
		must(t, err)
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %s", p, info.Mode())
		}
		if !d.IsDir() {
			names = append(names, p)
		}
		return nil
	}))
	if len(names) != 1 || names[0] != filepath.Join(dir, "agents", "a", "1") {
		t.Errorf("the directory holds %v", names)
	}
}

func TestWhatACrashLeftInADirectoryIsRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	left, young := filepath.Join(dir, "x.17a.tmp"), filepath.Join(dir, "y.17b.tmp")
	must(t, os.WriteFile(left, nil, 0o600))
	must(t, os.WriteFile(young, nil, 0o600))
	old := time.Now().Add(-48 * time.Hour)
	must(t, os.Chtimes(left, old, old))
	open(t, "file://"+dir)
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that a crash left is still there: %v", err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("a file that another process writes was removed: %v", err)
	}
}

func TestADirectoryThatIsNotMountedIsUnavailable(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	s := open(t, "file://"+dir)
	a := save(t, s, "x/1", content("f", 0o644, "precious"))
	must(t, os.Rename(dir, dir+".unmounted"))
	each(t.Context(), t, s, a, func(_ string, err error) { wantError(t, err, sandbox.Unavailable, "") })
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was stored below the disk that is not mounted: %v", err)
	}
	must(t, os.Rename(dir+".unmounted", dir))
	if got := load(t, s, a); got != "0 f 644 precious 1970\n" {
		t.Errorf("afterwards the archive holds %q", got)
	}
}

func TestURLsThatNameNoBucketAreRefused(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "/var/lib", "http://x/y", "file://relative/dir", "file:///x?y=z", "file:///%zz", "s3://key:secret@bucket",
		"s3://", "s3://b/path?region=r", "s3://b?region=r&unknown=1",
	} {
		_, err := snapshotstore.Open(t.Context(), url)
		wantError(t, err, sandbox.Invalid, "")
		if strings.Contains(fmt.Sprint(err), "secret@") {
			t.Errorf("the error shows a secret: %v", err)
		}
	}
}

// broken is a stream that ends with an error.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

func content(name string, mode int64, text string) tar.Header {
	return tar.Header{
		Typeflag:   tar.TypeReg,
		Name:       name,
		Mode:       mode,
		Size:       int64(len(text)),
		PAXRecords: map[string]string{"test.content": text},
	}
}

// pack makes a tar stream.
func pack(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		text := h.PAXRecords["test.content"]
		h.PAXRecords = nil
		must(t, w.WriteHeader(&h))
		_, err := io.WriteString(w, text)
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes()
}

func save(t testing.TB, s *snapshotstore.Store, object string, entries ...tar.Header) snapshotstore.Archive {
	t.Helper()
	a, err := s.Save(t.Context(), object, bytes.NewReader(pack(t, entries...)), 64*megabyte)
	must(t, err)
	return a
}

// load describes an archive, one entry a line.
func load(t testing.TB, s *snapshotstore.Store, a snapshotstore.Archive) string {
	t.Helper()
	r, err := s.Load(t.Context(), a)
	must(t, err)
	var b strings.Builder
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		text, err := io.ReadAll(tr)
		must(t, err)
		_, _ = fmt.Fprintf(&b, "%c %s %o %s%s %d\n", h.Typeflag, h.Name, h.Mode, h.Linkname, text, h.ModTime.UTC().Year())
	}
	_, err = io.Copy(io.Discard, r)
	must(t, errors.Join(err, r.Close()))
	return b.String()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantError checks code and, unless empty, reason.
func wantError(t testing.TB, err error, code sandbox.Code, reason sandbox.Reason) {
	t.Helper()
	if sandbox.CodeOf(err) != code || (reason != "" && sandbox.ReasonOf(err) != reason) {
		t.Errorf("error has code %q and reason %q, want %q and %q: %v",
			sandbox.CodeOf(err), sandbox.ReasonOf(err), code, reason, err)
	}
}
