//go:build linux

// Package output keeps the output of commands in files without a name.
package output

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"
)

// A ring is a file of a fixed size with the latest output of a process. After a header, it has the byte at offset n of
// the output at n modulo the rest's size. One process writes it, and any number read it. A reader may read bytes that
// are being overwritten. So the writer announces each write before it starts, and readers check after they have read.
//
//	header: 8 bytes each, little endian
//	  claimed   how much will have been written after the current write
//	  lost      output before this offset is not kept: the disk was full
//	  written   how much has been written
const (
	ringHeader = 4096
	// RingLimit is the size on disk, in bytes. sandbox.MaxProcessLog equals it.
	RingLimit = 8 << 20
)

const (
	atClaimed = 8 * iota
	atLost
	atWritten
	headerWords
)

// Ring is the writer's side.
type Ring struct {
	File *os.File
	size int64

	mu      sync.Mutex // guards the fields below
	written int64
	lost    int64
}

// MakeRing turns an empty file into a ring. Readers get its size from the file's length.
func MakeRing(file *os.File, size int64) (*Ring, error) {
	_, err := file.WriteAt(make([]byte, headerWords), 0)
	if err == nil {
		err = file.Truncate(ringHeader + size)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &Ring{File: file, size: size}, nil
}

// Write never fails: a process continues even if its log cannot be kept.
func (r *Ring) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	end := r.written + int64(len(p))
	kept := p[max(0, int64(len(p))-r.size):] // the rest would be overwritten immediately
	err := r.note(end)
	if err == nil {
		err = r.put(kept, end-int64(len(kept)))
	}
	if err != nil {
		r.lost = end
	}
	r.written = end
	_ = r.note(end) // the header's space is allocated from the start; otherwise the next write retries
	return len(p), nil
}

// note writes the header.
func (r *Ring) note(claimed int64) error {
	var b [headerWords]byte
	binary.LittleEndian.PutUint64(b[atClaimed:], uint64(claimed))
	binary.LittleEndian.PutUint64(b[atLost:], uint64(r.lost))
	binary.LittleEndian.PutUint64(b[atWritten:], uint64(r.written))
	_, err := r.File.WriteAt(b[:], 0)
	return err
}

// put writes p, which is no longer than the ring, at an offset of the output.
func (r *Ring) put(p []byte, offset int64) error {
	at := offset % r.size
	first := p[:min(int64(len(p)), r.size-at)]
	if _, err := r.File.WriteAt(first, ringHeader+at); err != nil {
		return err
	}
	_, err := r.File.WriteAt(p[len(first):], ringHeader)
	return err
}

// Counts returns how much was written, and whether part of it is not kept.
func (r *Ring) Counts() (total int64, dropped bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.written, r.written > r.size || r.lost > 0
}

// Kept returns how many bytes of the output are kept. The file's length does not tell: the file is sparse.
func (r *Ring) Kept() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return min(r.written, r.size)
}

// RingReader reads a ring while another process writes it.
type RingReader struct {
	File *os.File
	size int64
	// Next is the offset of the next byte to read.
	Next int64
	buf  []byte
}

func NewRingReader(file *os.File, from int64) (*RingReader, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	return &RingReader{File: file, size: info.Size() - ringHeader, Next: from, buf: make([]byte, 64<<10)}, nil
}

// Bounds returns the offset of the first byte that is certainly kept, and of the next byte to come.
func (r *RingReader) Bounds() (first, end int64, err error) {
	var b [headerWords]byte
	if _, err := r.File.ReadAt(b[:], 0); err != nil {
		return 0, 0, err
	}
	word := func(at int) int64 { return int64(binary.LittleEndian.Uint64(b[at:])) }
	return max(word(atClaimed)-r.size, word(atLost), 0), word(atWritten), nil
}

// Begin moves to the first byte at or after Next that is or will be kept.
func (r *RingReader) Begin() error {
	first, end, err := r.Bounds()
	r.Next = min(max(r.Next, first), max(first, end))
	return err
}

// Read returns the next bytes, none if there are no more yet. skipped: the next bytes are no longer kept, and
// Next has moved.
func (r *RingReader) Read() (p []byte, skipped bool, err error) {
	_, end, err := r.Bounds()
	if err != nil {
		return nil, false, err
	}
	at := r.Next % r.size
	n := min(end-r.Next, int64(len(r.buf)), r.size-at)
	p = r.buf[:max(n, 0)]
	if _, err := r.File.ReadAt(p, ringHeader+at); err != nil {
		return nil, false, err
	}
	first, _, err := r.Bounds()
	if err != nil {
		return nil, false, err
	}
	if r.Next < first { // some of p may have been overwritten during the read
		r.Next = first
		return nil, true, nil
	}
	r.Next += int64(len(p))
	return p, false, nil
}
