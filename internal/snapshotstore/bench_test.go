package snapshotstore_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/snapshotstore"
)

const benchSize = 128 * megabyte

// memories are files like an agent's: half text that compresses well, half random bytes that do not.
func memories(b *testing.B) []byte {
	b.Helper()
	const files, size = 1024, benchSize / 1024
	r := rand.New(rand.NewPCG(1, 2))
	var words [][]byte
	for range 2000 {
		word := make([]byte, 2+r.IntN(9))
		for i := range word {
			word[i] = byte('a' + r.IntN(26))
		}
		words = append(words, word)
	}
	entries := make([]tar.Header, 0, files)
	for i := range files {
		var text bytes.Buffer
		for text.Len() < size/2 {
			text.Write(words[int(r.ExpFloat64()*100)%len(words)])
			text.WriteByte(' ')
		}
		for text.Len() < size {
			text.WriteByte(byte(r.Uint32()))
		}
		entries = append(entries, content(fmt.Sprintf("memory/%04d.md", i), 0o644, text.String()))
	}
	return pack(b, entries...)
}

// BenchmarkState compares saving and loading /data with plain `tar | zstd` and `zstd | tar`, in one run on one machine.
// MB/s counts the bytes of the tar stream.
func BenchmarkState(b *testing.B) {
	stream := memories(b)
	s, err := snapshotstore.Open(b.Context(), "file://"+b.TempDir())
	must(b, err)
	b.Cleanup(func() { must(b, s.Close()) })
	var a snapshotstore.Archive
	b.Run("save", func(b *testing.B) {
		b.SetBytes(int64(len(stream)))
		for b.Loop() {
			a, err = s.Save(b.Context(), "x/1", bytes.NewReader(stream), 2*benchSize)
			must(b, err)
		}
		b.ReportMetric(float64(a.Bytes)/float64(a.Size), "stored/size")
	})
	b.Run("load", func(b *testing.B) {
		a, err = s.Save(b.Context(), "x/1", bytes.NewReader(stream), 2*benchSize)
		must(b, err)
		b.SetBytes(int64(len(stream)))
		for b.Loop() {
			r, err := s.Load(b.Context(), a)
			must(b, err)
			_, err = io.Copy(io.Discard, r)
			must(b, errors.Join(err, r.Close()))
		}
	})
	dir, archive := filepath.Join(b.TempDir(), "data"), filepath.Join(b.TempDir(), "data.tar.zst")
	must(b, os.Mkdir(dir, 0o700))
	unpack := exec.CommandContext(b.Context(), "tar", "-x", "-C", dir)
	unpack.Stdin = bytes.NewReader(stream)
	must(b, unpack.Run())
	shell := func(script string) func(b *testing.B) {
		return func(b *testing.B) {
			if _, err := exec.LookPath("zstd"); err != nil {
				b.Skip("there is no zstd")
			}
			b.SetBytes(int64(len(stream)))
			for b.Loop() {
				out, err := exec.CommandContext(b.Context(), "sh", "-ec", script, "sh", dir, archive).CombinedOutput()
				if err != nil {
					b.Fatalf("%v: %s", err, out)
				}
			}
		}
	}
	b.Run("tar | zstd", shell(`tar -c -C "$1" . | zstd -q -f -T2 -o "$2" && sync "$2"`))
	b.Run("zstd | tar", shell(`zstd -q -d -c "$2" | tar -t > /dev/null`))
}
