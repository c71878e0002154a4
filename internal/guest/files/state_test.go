//go:build linux

package files

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshotstore"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const stateLimit = 1 << 20

// hostile returns an archive with entries that a sandbox might have, and many that it should not: conflicting names of
// files, directories and links, names that lead out, and names that are too long.
func hostile(t *rapid.T) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	part := rapid.SampledFrom([]string{
		"a", "b", "c", ".", "..", "ü", "\xff", " ", strings.Repeat("n", 255), strings.Repeat("n", 256),
	})
	name := rapid.Custom(func(t *rapid.T) string {
		parts := rapid.SliceOfN(part, 1, 4).Draw(t, "parts")
		prefix := rapid.SampledFrom([]string{"", "./", "/", "/data/", "../"}).Draw(t, "prefix")
		return prefix + strings.Join(parts, "/")
	})
	kinds := rapid.SampledFrom([]byte{
		tar.TypeReg, tar.TypeReg, tar.TypeDir, tar.TypeDir, tar.TypeSymlink, tar.TypeLink, tar.TypeFifo, tar.TypeChar,
		tar.TypeXGlobalHeader,
	})
	for range rapid.IntRange(0, 12).Draw(t, "entries") {
		h := &tar.Header{
			Typeflag: kinds.Draw(t, "kind"),
			Name:     name.Draw(t, "name"),
			Mode:     rapid.Int64Range(0, 0o7777).Draw(t, "mode"),
			Uid:      rapid.IntRange(0, 1<<20).Draw(t, "uid"),
			ModTime:  time.Unix(rapid.Int64().Draw(t, "modified"), rapid.Int64Range(0, 1e9-1).Draw(t, "nanoseconds")),
		}
		var text string
		switch h.Typeflag {
		case tar.TypeReg:
			text = rapid.StringN(0, 20, 600).Draw(t, "content")
			h.Size = int64(len(text))
		case tar.TypeSymlink, tar.TypeLink:
			h.Linkname = name.Draw(t, "target")
		case tar.TypeXGlobalHeader:
			*h = tar.Header{Typeflag: h.Typeflag, PAXRecords: map[string]string{"path": h.Name}}
		}
		if w.WriteHeader(h) == nil { // else no tar stream can contain it
			if _, err := io.WriteString(w, text); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestWhatIsKeptOfDataCanBeUnpackedAgain joins both ends of a sandbox's snapshot: package snapshotstore decides what an
// archive holds, and this package refuses what leads out of a directory.
func TestWhatIsKeptOfDataCanBeUnpackedAgain(t *testing.T) {
	t.Parallel()
	s := openState(t)
	rapid.Check(t, func(t *rapid.T) {
		stream := hostile(t)
		a, err := s.Save(context.Background(), "x/1", bytes.NewReader(stream), stateLimit)
		if err != nil {
			t.Fatalf("a sound stream was refused: %v", err)
		}
		if err := unpacksWhole(s, a); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzWhatIsKeptOfDataCanBeUnpackedAgain(f *testing.F) {
	s := openState(f)
	example := rapid.Custom(hostile)
	for seed := range 20 {
		f.Add(example.Example(seed))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		a, err := s.Save(t.Context(), "x/1", bytes.NewReader(stream), stateLimit)
		if err != nil {
			if sandbox.CodeOf(err) != sandbox.Invalid {
				t.Fatalf("a stream was refused with code %s: %v", sandbox.CodeOf(err), err)
			}
			return
		}
		if err := unpacksWhole(s, a); err != nil {
			t.Fatal(err)
		}
	})
}

func openState(t testing.TB) *snapshotstore.Store {
	s, err := snapshotstore.Open(t.Context(), "mem://")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// unpacksWhole unpacks an archive, and checks that the result is complete and that nothing else is there.
func unpacksWhole(s *snapshotstore.Store, a snapshotstore.Archive) (err error) {
	outside, err := os.MkdirTemp("", "unpacked")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(outside)) }()
	dir := filepath.Join(outside, "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	r, err := s.Load(context.Background(), a)
	if err != nil {
		return err
	}
	stream, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		return err
	}
	if err := (Worker{}).unpackInto(context.Background(), root, bytes.NewReader(stream)); err != nil {
		return err
	}
	if escaped, err := os.ReadDir(outside); err != nil || len(escaped) != 1 {
		return errors.Join(err, errors.New("something lies outside of the directory"))
	}
	return sameTree(root, stream, a)
}

func sameTree(root *os.Root, stream []byte, a snapshotstore.Archive) error {
	want := int64(0)
	for tr := tar.NewReader(bytes.NewReader(stream)); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeDir {
			want++
		}
		info, err := root.Lstat(path.Clean(h.Name))
		if err != nil {
			return err
		}
		regular := h.Typeflag == tar.TypeReg || h.Typeflag == tar.TypeDir
		if regular &&
			(info.Mode().Perm() != fs.FileMode(h.Mode) || info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) != 0) {
			return errors.New(h.Name + " has mode " + info.Mode().String())
		}
		if regular && !info.ModTime().Equal(h.ModTime) {
			return errors.New(h.Name + " was modified at " + info.ModTime().String())
		}
	}
	found := int64(0)
	err := filepath.WalkDir(root.Name(), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found++
		}
		return err
	})
	if want != a.Files || found != want {
		return errors.Join(err, errors.New("the files are not those of the archive"))
	}
	return err
}
