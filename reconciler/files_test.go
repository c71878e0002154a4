package reconciler_test

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// pattern is the content of a file with a given size that repeats nothing at a short distance.
type pattern struct{ at, size int64 }

func (p *pattern) Read(b []byte) (int, error) {
	if p.at == p.size {
		return 0, io.EOF
	}
	n := int(min(int64(len(b)), p.size-p.at))
	for i := range n {
		at := p.at + int64(i)
		b[i] = byte(at ^ at>>8 ^ at>>16)
	}
	p.at += int64(n)
	return n, nil
}

// wantPattern reads a stream to its end, which must be a pattern.
func wantPattern(t *testing.T, what string, got io.Reader, size int64) {
	t.Helper()
	want := &pattern{size: size}
	a, b := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := int64(0); ; {
		n, err := io.ReadFull(got, a)
		m, _ := io.ReadFull(want, b) // never fails
		if n != m || string(a[:n]) != string(b[:m]) {
			t.Fatalf("%s: differs after byte %d", what, at)
		}
		if at += int64(n); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return
		}
		if err != nil {
			t.Fatalf("%s: after byte %d: %v", what, at+int64(n), err)
		}
	}
}

// peak returns the peak memory of the reconciler since the last call, in MiB.
func (w *world) peak() int {
	w.Helper()
	proc := fmt.Sprintf("/proc/%d/", w.process.Process.Pid)
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		w.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		w.Fatal(err)
	}
	const resetPeak = "5" // proc(5), clear_refs
	if err := os.WriteFile(proc+"clear_refs", []byte(resetPeak), 0); err != nil {
		w.Fatal(err)
	}
	return kib >> 10
}

const (
	largeFile = 100_000_000 // bytes
	manyFiles = 10_000
)

// archiveOf streams an archive of many small files.
func archiveOf(n int) io.ReadCloser {
	r, w := io.Pipe()
	go func() { // ends with the reader
		t := tar.NewWriter(w)
		var err error
		for i := 0; i < n && err == nil; i++ {
			text := fmt.Sprintf("file %d\n", i)
			err = t.WriteHeader(&tar.Header{
				Typeflag: tar.TypeReg,
				Name:     fmt.Sprintf("many/%d/%d", i%100, i),
				Mode:     0o644,
				Size:     int64(len(text)),
			})
			if err == nil {
				_, err = io.WriteString(t, text)
			}
		}
		w.CloseWithError(errors.Join(err, t.Close()))
	}()
	return r
}

// TestManyAndLargeFilesGoBothWaysInFlatMemory copies files over HTTP, through a reconciler, to a real container and
// back, as a tar stream and as one file.
func TestManyAndLargeFilesGoBothWaysInFlatMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.environment("catan")
	ref := sandbox.LeaseRef{ID: w.acquire(agent(0), "catan").ID}
	before := w.peak()

	if err := w.service.WriteFile(t.Context(), ref, sandbox.FileWrite{Path: "large"},
		&pattern{size: largeFile}); err != nil {
		t.Fatal(err)
	}
	content, err := w.service.ReadFile(t.Context(), ref, sandbox.FileRead{Path: "large"})
	if err != nil {
		t.Fatal(err)
	}
	wantPattern(t, "one file", content, largeFile)
	if err := content.Close(); err != nil {
		t.Error(err)
	}
	r, err := w.service.ReadFiles(t.Context(), ref, "large")
	if err != nil {
		t.Fatal(err)
	}
	entries := tar.NewReader(r)
	if _, err := entries.Next(); err != nil {
		t.Fatal(err)
	}
	wantPattern(t, "an archive of one file", entries, largeFile)
	if err := r.Close(); err != nil {
		t.Error(err)
	}

	archive := archiveOf(manyFiles)
	if err := errors.Join(w.service.WriteFiles(t.Context(), ref, "/workspace", archive), archive.Close()); err != nil {
		t.Fatal(err)
	}
	if r, err = w.service.ReadFiles(t.Context(), ref, "many"); err != nil {
		t.Fatal(err)
	}
	if n := countFiles(t, r); n != manyFiles {
		t.Errorf("%d files came back of %d", n, manyFiles)
	}
	grown := w.peak() - before
	t.Logf("the reconciler held %d MiB more than before", grown)
	if grown > raceMemory*largeFile>>21 {
		t.Errorf("the reconciler held %d MiB more while files of %d MiB went through it", grown, largeFile>>20)
	}
}

// countFiles counts the files of an archive, and checks their content.
func countFiles(t *testing.T, r io.ReadCloser) (n int) {
	t.Helper()
	for entries := tar.NewReader(r); ; {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		text, err := io.ReadAll(entries)
		if want := "file " + h.Name[strings.LastIndexByte(h.Name, '/')+1:] + "\n"; err != nil || string(text) != want {
			t.Fatalf("%s holds %q: %v", h.Name, text, err)
		}
		n++
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	return n
}
