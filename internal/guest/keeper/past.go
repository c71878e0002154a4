//go:build linux

package keeper

import (
	"hash/fnv"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
)

// pastIDs is the number of ids in a generation of past, of 8 bytes each.
const pastIDs = 16 << 10

// past remembers the ids of forgotten operations, in two generations. It stores hashes: a collision only
// makes the sandbox refuse a repetition.
type past struct {
	late, early []uint64
	// from is the time since which the memory is complete; zero means since the start of process 1. since is the start of
	// the late generation.
	from, since time.Time
}

func (p *past) add(id string, now time.Time) {
	if len(p.late) == pastIDs {
		p.late, p.early = p.early[:0], p.late
		p.from, p.since = p.since, now
	}
	p.late = append(p.late, hashOf(id))
}

// mayHave reports whether an operation with an id may have begun recently: it has, or the memory does not reach back
// far enough.
func (p *past) mayHave(id string, now time.Time) bool {
	hash := hashOf(id)
	return slices.Contains(p.late, hash) || slices.Contains(p.early, hash) ||
		!p.from.IsZero() && now.Sub(p.from) < 2*channel.RepeatWithin
}

func hashOf(id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // never fails
	return h.Sum64()
}
