//go:build linux

package keeper

import (
	"hash/fnv"
	"slices"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
)

// pastIDs is how many ids a generation of past has, of 8 bytes each.
const pastIDs = 16 << 10

// past remembers the ids of operations of which nothing else is kept any more, in two generations. It keeps hashes: two
// ids of one hash make the sandbox refuse a repetition, and no more.
type past struct {
	late, early []uint64
	// from is since when all is remembered, and since when the late generation began; zero since the start.
	from, since time.Time
}

func (p *past) add(id string, now time.Time) {
	if len(p.late) == pastIDs {
		p.late, p.early = p.early[:0], p.late
		p.from, p.since = p.since, now
	}
	p.late = append(p.late, hashOf(id))
}

// mayHave tells whether an operation of an id may have begun lately: it has, or not enough is remembered to deny it.
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
