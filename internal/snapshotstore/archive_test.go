package snapshotstore_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// These tests archive what hostile code may put under /data. The tests of the guest prove that it can unpack everything
// that is kept.

func TestWhatCannotBeRestoredIsLeftOutAndCounted(t *testing.T) {
	t.Parallel()
	s := open(t, "mem://")
	link := func(name, target string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
	}
	for name, c := range map[string]struct {
		entries []tar.Header
		want    string
		skipped int64
	}{
		"links that lead out": {
			[]tar.Header{link("a", "/etc/passwd"), link("b", "../x"), link("d/c", "../../x"), link("e", "/database")}, "", 4,
		},
		"links that stay inside, however they say it": {[]tar.Header{
			link("a", "gone"), link("d/b", "../a"), link("d/e/c", "/data/x/../a"), link("f", "/data"),
		},
			"2 a 0 gone 1970\n2 d/b 0 ../a 1970\n2 d/e/c 0 ../../a 1970\n2 f 0 . 1970\n", 0},
		"names that lead out": {[]tar.Header{
			content("/etc/passwd", 0o644, "x"), content("../x", 0o644, "x"), content("a/../../x", 0o644, "x"),
		}, "", 3},
		"names that are taken": {[]tar.Header{
			content("a", 0o644, "1"), content("./a", 0o644, "2"), {Typeflag: tar.TypeDir, Name: "a/"},
		}, "0 a 644 1 1970\n", 2},
		"files below files": {[]tar.Header{
			content("a", 0o644, "1"), content("a/b", 0o644, "2"), link("l", "."), content("l/b", 0o644, "2"),
		}, "0 a 644 1 1970\n2 l 0 . 1970\n", 2},
		"hard links to nothing": {[]tar.Header{
			{Typeflag: tar.TypeLink, Name: "a", Linkname: "b"}, {Typeflag: tar.TypeLink, Name: "c", Linkname: "../x"},
			{Typeflag: tar.TypeDir, Name: "d/"}, {Typeflag: tar.TypeLink, Name: "e", Linkname: "d"},
		}, "5 d/ 0  1970\n", 3},
		"devices and pipes": {[]tar.Header{
			{Typeflag: tar.TypeChar, Name: "a"}, {Typeflag: tar.TypeBlock, Name: "b"}, {Typeflag: tar.TypeFifo, Name: "c"},
		}, "", 3},
		"names longer than Linux takes": {[]tar.Header{
			content(strings.Repeat("n", 256), 0o644, "x"), content(strings.Repeat("n/", 2048)+"x", 0o644, "x"),
			content(strings.Repeat("d/", 200)+"x", 0o644, "x"), link("l", strings.Repeat("n", 5000)),
		}, "", 4},
		"owners and special modes": {[]tar.Header{{Typeflag: tar.TypeDir, Name: "a/", Mode: 0o7777, Uid: 7, Uname: "root"}},
			"5 a/ 777  1970\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := save(t, s, "x/"+strings.ReplaceAll(name, " ", "-"), c.entries...)
			if got := load(t, s, a); got != c.want || a.Skipped != c.skipped {
				t.Errorf("%d were skipped and the archive holds\n%s\nwant %d and\n%s", a.Skipped, got, c.skipped, c.want)
			}
		})
	}
}

func TestExtendedRecordsAreNotKept(t *testing.T) {
	t.Parallel()
	s := open(t, "mem://")
	h := content("f", 0o644, "x")
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	must(t, w.WriteHeader(&tar.Header{
		Typeflag:   tar.TypeReg,
		Name:       "f",
		Size:       0,
		PAXRecords: map[string]string{"SCHILY.xattr.user.x": strings.Repeat("x", 1<<19)},
	}))
	must(t, w.Close())
	a, err := s.Save(t.Context(), "x/1", &b, megabyte)
	must(t, err)
	if plain := save(t, s, "x/2", h); a.Size > plain.Size {
		t.Errorf("with records the archive takes %d bytes, without them %d", a.Size, plain.Size)
	}
}

// sparse is a stream with one file of GNU tar's sparse format, which is a hole except for its last byte.
func sparse(size int64) []byte {
	var h [512]byte
	octal := func(at, width int, n int64) { copy(h[at:], fmt.Sprintf("%0*o", width-1, n)) }
	copy(h[0:], "hole")
	octal(100, 8, 0o644)
	octal(124, 12, 1) // bytes in the stream
	octal(136, 12, 0)
	h[156] = tar.TypeGNUSparse
	copy(h[257:], "ustar  \x00")
	octal(386, 12, size-1) // their offset in the file
	octal(398, 12, 1)
	octal(483, 12, size)
	copy(h[148:], "        ")
	sum := int64(0)
	for _, c := range h {
		sum += int64(c)
	}
	octal(148, 7, sum)
	return append(append(h[:], "!"...), make([]byte, 511+1024)...)
}

func TestHolesCountAsWhatTheyWouldTake(t *testing.T) {
	t.Parallel()
	s := open(t, "mem://")
	a, err := s.Save(t.Context(), "x/1", bytes.NewReader(sparse(10_000)), megabyte)
	must(t, err)
	if got, want := load(t, s, a), "0 hole 644 "+strings.Repeat("\x00", 9_999)+"! 1970\n"; got != want {
		t.Errorf("loaded %q", got)
	}
	_, err = s.Save(t.Context(), "x/2", bytes.NewReader(sparse(8_000_000_000)), megabyte)
	wantError(t, err, sandbox.Invalid, sandbox.ReasonResourceLimitExceeded)
}

// endless is a stream that repeats one block.
type endless struct {
	block []byte
	left  []byte
}

func (e *endless) Read(p []byte) (int, error) {
	if len(e.left) == 0 {
		e.left = e.block
	}
	n := copy(p, e.left)
	e.left = e.left[n:]
	return n, nil
}

func TestAStreamWithoutEndIsRefused(t *testing.T) {
	t.Parallel()
	s := open(t, "mem://")
	one := pack(t, tar.Header{Typeflag: tar.TypeFifo, Name: "p"})[:512]
	_, err := s.Save(t.Context(), "x/1", &endless{block: one}, 8*megabyte)
	wantError(t, err, sandbox.Invalid, sandbox.ReasonResourceLimitExceeded)
	if !strings.Contains(fmt.Sprint(err), fmt.Sprint(8*megabyte)) {
		t.Errorf("the error does not name the limit: %v", err)
	}
	_, err = s.Save(t.Context(), "x/2", &endless{block: one}, math.MaxInt64)
	wantError(t, err, sandbox.Invalid, sandbox.ReasonResourceLimitExceeded)
	if !strings.Contains(fmt.Sprint(err), "entries") {
		t.Errorf("the error does not name the entries: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Save(ctx, "x/3", &endless{block: one}, math.MaxInt64)
	wantError(t, err, sandbox.Unavailable, "")
}
