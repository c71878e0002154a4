package gitmirror

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/idxfile"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// install checks a pack from outside and adds it to a mirror. It returns the name of the pack, without its ending, and
// the number of its objects. A pack without objects is not kept.
func (m *mirror) install(ctx context.Context, from io.Reader, l Limits) (name string, objects int, err error) {
	dir := filepath.Join(m.dir, "objects", "pack")
	f, err := os.CreateTemp(dir, "incoming-*")
	if err != nil {
		return "", 0, cacheError(err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // of a failed installation
	defer func() { _ = f.Close() }()           // of a failed installation
	n, err := io.Copy(f, io.LimitReader(from, l.PackBytes+1))
	switch {
	case err != nil:
		return "", 0, err
	case n > l.PackBytes:
		return "", 0, tooLarge("the pack", l.PackBytes, "bytes")
	}
	hash, objects, err := indexPack(ctx, f, l, filepath.Join(dir, filepath.Base(f.Name())+".idx"))
	if err != nil || objects == 0 {
		return "", 0, err
	}
	name = "pack-" + hash.String()
	// The index comes first: a pack without one would be read.
	if err := errors.Join(f.Sync(), f.Close(), os.Rename(f.Name()+".idx", filepath.Join(dir, name+".idx")),
		os.Rename(f.Name(), filepath.Join(dir, name+".pack"))); err != nil {
		return "", 0, cacheError(err)
	}
	return name, objects, nil
}

// encode writes objects of a mirror as a pack. It opens the mirror itself, because go-git's storage cannot return sizes
// after its deltas were read (v5.19.3, ObjectStorage.DeltaObject leaves a pending header in the scanner).
func (m *mirror) encode(w io.Writer, all []plumbing.Hash) (err error) {
	objects := m.open()
	defer func() { _ = objects.Close() }() // only read
	const window = 10                      // git's default
	_, err = packfile.NewEncoder(w, objects, false).Encode(all, window)
	return err
}

// indexPack checks a pack and writes its index to a file.
func indexPack(ctx context.Context, pack io.ReadSeeker, l Limits,
	to string) (hash plumbing.Hash, objects int, err error) {
	in := interruptible{pack, ctx}
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return hash, 0, cacheError(err)
	}
	if objects, err = survey(in, l); err != nil || objects == 0 {
		return hash, 0, err
	}
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return hash, 0, cacheError(err)
	}
	w := new(idxfile.Writer)
	parser, err := packfile.NewParser(packfile.NewScanner(in), w)
	if err == nil {
		hash, err = parser.Parse()
	}
	if err != nil {
		return hash, 0, damaged(ctx, err)
	}
	all, err := w.Index()
	if err != nil {
		return hash, 0, damaged(ctx, err)
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil {
		_, err = idxfile.NewEncoder(f).Encode(all)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		_ = os.Remove(to)
		return hash, 0, cacheError(err)
	}
	return hash, objects, nil
}

// damaged is the error of a pack that cannot be read.
func damaged(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return sandbox.Errorf(sandbox.Timeout, "reading the pack: %w", ctx.Err())
	}
	var e *sandbox.Error
	if errors.As(err, &e) {
		return err
	}
	return sandbox.Errorf(sandbox.Failed, "the pack is damaged: %w", err)
}

// survey reads every object of a pack once, and keeps none. It refuses a pack whose objects declare too large a size,
// so that nothing unpacks them afterwards.
func survey(in io.Reader, l Limits) (int, error) {
	scanner := packfile.NewScanner(in)
	_, count, err := scanner.Header()
	if err != nil {
		return 0, sandbox.Errorf(sandbox.Failed, "the pack is damaged: %w", err)
	}
	if int64(count) > l.Objects {
		return 0, tooLarge("the pack", l.Objects, "objects")
	}
	var total int64
	for range count {
		h, err := scanner.NextObjectHeader()
		if err != nil {
			return 0, sandbox.Errorf(sandbox.Failed, "the pack is damaged: %w", err)
		}
		size, head := h.Length, headOf{}
		if size > l.ObjectBytes {
			return 0, tooLarge("an object", l.ObjectBytes, "bytes")
		}
		if _, _, err := scanner.NextObject(&head); err != nil {
			return 0, sandbox.Errorf(sandbox.Failed, "the pack is damaged: %w", err)
		}
		if h.Type.IsDelta() {
			size = head.deltaTarget()
		}
		if size < 0 || size > l.ObjectBytes {
			return 0, tooLarge("an object", l.ObjectBytes, "bytes")
		}
		if total += size; total > l.UnpackedBytes {
			return 0, tooLarge("all objects together", l.UnpackedBytes, "bytes")
		}
	}
	return int(count), nil
}

// headOf keeps the first bytes of an object.
type headOf struct {
	bytes [2 * binary.MaxVarintLen64]byte
	n     int
}

func (h *headOf) Write(p []byte) (int, error) {
	h.n += copy(h.bytes[h.n:], p)
	return len(p), nil
}

// deltaTarget returns the size of the object that a delta makes, -1 if the delta does not declare it.
func (h *headOf) deltaTarget() int64 {
	rest := h.bytes[:h.n]
	_, n := binary.Uvarint(rest) // the size of the base
	if n <= 0 {
		return -1
	}
	size, n := binary.Uvarint(rest[n:])
	if n <= 0 || size > 1<<62 {
		return -1
	}
	return int64(size)
}
