package sandbox

import (
	"crypto/sha256"
	"encoding/binary"
)

// KeeperID is the user and group of process 1 of a sandbox. Code of a sandbox never runs under it. Every user namespace
// has it.
const KeeperID = 65533

// Users of sandboxes. Kernel limits, such as inotify instances and pending signals, count for each user of the host, so a
// user of its own keeps a sandbox from using up its neighbours'.
const (
	// firstOwnID begins a range that no distribution, container manager or directory service hands out:
	// https://systemd.io/UIDS-GIDS, read 2026-11-22, lists 0x70000000 to 0x7FFFFFFF as unused.
	firstOwnID = 0x70000000
	ownIDs     = 1 << 28
	// firstNarrowID begins the range on engines with user namespaces, which map 65,536 ids.
	firstNarrowID = 20_000
	narrowIDs     = 40_000
	// idsEach is how many ids a sandbox takes: the second one is its verifier's.
	idsEach = 2
)

// Identity is the user and group of a sandbox's code.
type Identity struct {
	UID, GID int
	// Own: the user belongs to this sandbox alone. Two sandboxes out of a thousand on one engine share theirs with a
	// probability of 0.4 %; they then share kernel limits and nothing else.
	Own bool
}

// Identity returns the user of a sandbox: the one that the confinement names, else one that follows from the sandbox's
// id. narrow is for engines with user namespaces.
func (c Confinement) Identity(sandboxID string, narrow bool) Identity {
	if uid, gid, ok := c.ids(); ok {
		return Identity{UID: uid, GID: gid}
	}
	first, count := uint64(firstOwnID), uint64(ownIDs)
	if narrow {
		first, count = firstNarrowID, narrowIDs
	}
	sum := sha256.Sum256([]byte(sandboxID))
	id := int(first + binary.BigEndian.Uint64(sum[:])%(count/idsEach)*idsEach)
	return Identity{UID: id, GID: id, Own: true}
}

// Verifier returns the user and group of a sandbox's verifier. One whose user is not its own has none: the next id may be
// that of another user.
func (i Identity) Verifier() (id int, ok bool) { return i.UID + 1, i.Own }
