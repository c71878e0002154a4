//go:build linux

package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// maxFingerprinted bounds the files that a fingerprint is made of: beyond, looking takes longer than saving.
const maxFingerprinted = 20_000

// fingerprint tells one content of a directory from another by what the kernel says of each file, without
// reading any. It is "" where that cannot be told.
func fingerprint(dir string) string {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return ""
	}
	defer root.Close()
	p := printer{packer: packer{root: root}, sum: sha256.New()}
	if err := p.add("."); err != nil {
		return ""
	}
	if p.seen == 0 {
		return wire.DataEmpty
	}
	return hex.EncodeToString(p.sum.Sum(nil)[:16])
}

type printer struct {
	packer
	sum  hash.Hash
	seen int
}

func (p *printer) add(dir string) error {
	names, err := p.names(dir)
	if err != nil {
		return err
	}
	for _, base := range names {
		if p.seen++; p.seen > maxFingerprinted {
			return fmt.Errorf("more than %d files", maxFingerprinted)
		}
		name := path.Join(dir, base)
		info, err := p.root.Lstat(name)
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("%s: the kernel does not describe it", name)
		}
		_, _ = fmt.Fprintf(p.sum, "%q %d %o %d %d.%d\n", name, stat.Ino, stat.Mode, stat.Size, stat.Ctim.Sec, stat.Ctim.Nsec) // a hash does not fail
		if info.IsDir() {
			if err := p.add(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// runSave packs a directory while nothing else runs in the sandbox, so that the archive is one moment's. It is
// not packed when its fingerprint is a given one, or its files have more bytes than a limit, unless that is 0.
// With end, everything else is ended before, for good.
func runSave(dir, unless string, limit int64, end bool, out io.Writer) wire.Result {
	if end {
		endOthers()
	}
	goOn, err := standStill()
	defer goOn()
	if err != nil {
		return problem(err)
	}
	r := wire.Result{Data: fingerprint(dir)}
	if r.Data != "" && r.Data == unless {
		return r
	}
	if size := sizeOf(dir); limit > 0 && size > limit {
		return problem(fmt.Errorf("the files in %s have %d bytes, and at most %d are kept: delete some of them", dir, size, limit))
	}
	if err := packAll(dir, out); err != nil {
		return problem(err)
	}
	return r
}

// sizeOf adds up the files below a directory, holes included. What cannot be read is left for packing to tell.
func sizeOf(dir string) (size int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error { // it never fails
		if err != nil || !e.Type().IsRegular() {
			return nil //nolint:nilerr // see above
		}
		if info, err := e.Info(); err == nil {
			size += info.Size()
		}
		return nil
	})
	return size
}

// packAll writes what lies in a directory as a tar stream, with names relative to it and with its hard links.
// What unpack would refuse is left out.
func packAll(dir string, out io.Writer) error {
	root, rel, err := openRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	within, err := root.OpenRoot(rel)
	if err != nil {
		return err
	}
	defer within.Close()
	return packWithin(within, dir, out)
}

func packWithin(within *os.Root, dir string, out io.Writer) error {
	w := packer{tw: tar.NewWriter(out), root: within, kept: &kept{dir: dir, links: map[uint64]string{}}}
	return errors.Join(w.tree(".", "."), w.tw.Close())
}

// kept is what packing needs to know to have a directory as a whole.
type kept struct {
	dir   string
	links map[uint64]string // the name that an inode with several is packed under
}

// linkInside returns the target of a symbolic link at name as one that leads to the same place wherever the
// directory lies, "" for one that leads out of it.
func linkInside(dir, name, target string) string {
	if filepath.IsAbs(target) {
		rest, err := filepath.Rel(dir, filepath.Clean(target))
		if err != nil {
			return ""
		}
		if target, err = filepath.Rel(filepath.Dir(name), rest); err != nil {
			return ""
		}
	}
	if target == "" || !filepath.IsLocal(filepath.Join(filepath.Dir(name), target)) {
		return ""
	}
	return target
}

// first returns the name that a file has already been packed under, "" for one that comes first, or has one name.
func (k *kept) first(info fs.FileInfo, as string) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Nlink < 2 {
		return ""
	}
	before := k.links[stat.Ino]
	if before == "" {
		k.links[stat.Ino] = as
	}
	return before
}
