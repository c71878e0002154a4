package channel

import (
	"math/bits"
	"sync"
)

// backlog holds the bytes of a session from the first unacknowledged one. It is a ring that grows and shrinks as
// needed, and uses no memory while it is empty.
type backlog struct {
	first int64 // the offset of the first byte
	ring  []byte
	head  int // its place in ring
	n     int
}

const minRing = 1 << 10

// rings keeps rings for reuse, by the binary logarithm of their size: a busy session empties and fills its ring
// with each command.
var rings [bits.UintSize]sync.Pool

// newRing returns a ring. size must be a power of two.
func newRing(size int) []byte {
	if ring, ok := rings[bits.Len(uint(size))].Get().(*[]byte); ok {
		return *ring
	}
	return make([]byte, size)
}

// recycle keeps an unused ring for reuse.
func recycle(ring []byte) {
	if len(ring) > 0 {
		rings[bits.Len(uint(len(ring)))].Put(&ring)
	}
}

// end is the offset after the last byte.
func (b *backlog) end() int64 { return b.first + int64(b.n) }

// add appends p.
func (b *backlog) add(p []byte) {
	if need := b.n + len(p); need > len(b.ring) {
		size := max(minRing, 2*len(b.ring))
		for size < need {
			size *= 2
		}
		b.resize(size)
	}
	tail := b.head + b.n
	if tail >= len(b.ring) {
		tail -= len(b.ring)
	}
	k := copy(b.ring[tail:], p)
	copy(b.ring, p[k:])
	b.n += len(p)
}

func (b *backlog) resize(size int) {
	ring := newRing(size)
	b.copyFrom(b.first, ring)
	recycle(b.ring)
	b.ring, b.head = ring, 0
}

// copyFrom copies bytes from an offset into p, and returns how many.
func (b *backlog) copyFrom(offset int64, p []byte) int {
	skip := int(offset - b.first)
	p = p[:min(len(p), b.n-skip)]
	if len(p) == 0 {
		return 0
	}
	at := b.head + skip
	if at >= len(b.ring) {
		at -= len(b.ring)
	}
	k := copy(p, b.ring[at:])
	return k + copy(p[k:], b.ring)
}

// release drops the bytes before an offset within the backlog.
func (b *backlog) release(offset int64) {
	k := int(offset - b.first)
	b.first, b.n = offset, b.n-k
	if b.n == 0 {
		recycle(b.ring)
		b.ring, b.head = nil, 0
		return
	}
	b.head += k
	if b.head >= len(b.ring) {
		b.head -= len(b.ring)
	}
	if len(b.ring) > minRing && b.n <= len(b.ring)/4 {
		b.resize(len(b.ring) / 2)
	}
}
