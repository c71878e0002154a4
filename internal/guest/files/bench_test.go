//go:build linux

package files

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// BenchmarkPut unpacks 100 MiB, and reports the time as a multiple of tar(1)'s in the same directory.
func BenchmarkPut(b *testing.B) {
	if _, err := exec.LookPath("tar"); err != nil {
		b.Skip(err)
	}
	for _, files := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("%d files", files), func(b *testing.B) {
			base := b.TempDir()
			dir := filepath.Join(base, "workspace")
			stream := many(b, files, 100<<20/files)
			own, with := Worker{base: base}, Worker{base: base, identity: &Identity{UID: sandboxID, GID: sandboxID}}
			var plain, ours, theirs time.Duration
			measure := func(sum *time.Duration, unpack func(io.Reader) error) {
				err := os.Mkdir(dir, 0o777)
				if err == nil {
					err = os.Chmod(dir, 0o777)
				}
				start := time.Now()
				if err == nil {
					err = unpack(bytes.NewReader(stream))
				}
				*sum += time.Since(start)
				if err == nil {
					err = os.RemoveAll(dir)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			put := func(w Worker) func(io.Reader) error {
				return func(in io.Reader) error {
					res := w.Serve(b.Context(), channel.Request{Op: channel.OpPut, Path: []byte("/workspace")}, in,
						wire.NewWriter(io.Discard))
					if res.Problem != "" {
						return fmt.Errorf("put: %s", res.Message)
					}
					return nil
				}
			}
			if os.Geteuid() == 0 {
				if err := errors.Join(os.Chmod(base, 0o755), os.Chmod(filepath.Dir(base), 0o755)); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				measure(&plain, func(in io.Reader) error {
					c := exec.CommandContext(b.Context(), "tar", "x", "-C", dir)
					c.Stdin = in
					return c.Run()
				})
				measure(&ours, put(own))
				if os.Geteuid() == 0 {
					measure(&theirs, put(with))
				}
			}
			b.ReportMetric(ours.Seconds()/plain.Seconds(), "×tar")
			b.ReportMetric(theirs.Seconds()/plain.Seconds(), "×tar-with-identity")
			b.ReportMetric(100*float64(b.N)/plain.Seconds(), "MiB/s-tar")
		})
	}
}

func many(b *testing.B, files, size int) []byte {
	var entries []tar.Header
	for i := range files {
		if i%100 == 0 {
			entries = append(entries, tar.Header{Typeflag: tar.TypeDir, Name: fmt.Sprintf("project/%d/", i/100), Mode: 0o755})
		}
		entries = append(entries,
			tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("project/%d/%d", i/100, i), Mode: 0o644})
	}
	return archive(b, strings.Repeat("x", size), entries...).Bytes()
}

// BenchmarkStat shows the fixed cost of an operation: with an identity, a thread.
func BenchmarkStat(b *testing.B) {
	base := b.TempDir()
	for _, dir := range []string{filepath.Join(base, "workspace"), base, filepath.Dir(base)} {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755)); err != nil {
			b.Fatal(err)
		}
	}
	for name, identity := range map[string]*Identity{"own": nil, "identity": {UID: sandboxID, GID: sandboxID}} {
		b.Run(name, func(b *testing.B) {
			if identity != nil && os.Geteuid() != 0 {
				b.Skip("needs root: it changes the file-system identity")
			}
			w := Worker{base: base, identity: identity}
			for b.Loop() {
				if _, res := serve(b.Context(), w, onFile(wire.FileRequest{Op: wire.FileStat, Path: []byte("/workspace")}),
					nil); res.Problem != "" {
					b.Fatal(res.Message)
				}
			}
		})
	}
}
