package sandbox

import (
	"crypto/sha256"
	"encoding/binary"
)

// KeeperID is the user and group of process 1 of a sandbox. Sandbox code never runs under it. Every user
// namespace contains it.
const KeeperID = 65533

// Users of sandboxes. Kernel limits, such as inotify instances and pending signals, apply per host user. With a
// separate user, a sandbox cannot use up its neighbours' limits.
const (
	// firstOwnID starts a range that no distribution, container manager or directory service assigns.
	// https://systemd.io/UIDS-GIDS, read 2026-11-22, lists 0x70000000 to 0x7FFFFFFF as unused.
	firstOwnID = 0x70000000
	ownIDs     = 1 << 28
	// firstNarrowID starts the range on engines with user namespaces, which map only 65,536 ids.
	firstNarrowID = 20_000
	narrowIDs     = 40_000
	// idsEach is the number of ids per sandbox: one for its code, one for its verifier.
	idsEach = 2
)

// Identity is the user and group of a sandbox's code.
type Identity struct {
	UID, GID int
	// Own: the user is meant for this sandbox alone. Among a thousand sandboxes on one engine, two get the same
	// user with a probability of 0.4 %. They then share kernel limits and nothing else.
	Own bool
}

// Identity returns the user of a sandbox: the one that the confinement names, or one derived from the sandbox's
// id. Set narrow for engines with user namespaces.
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

// Verifier returns the user and group of the sandbox's verifier. A sandbox with a configured user has none,
// because the next id may belong to another user.
func (i Identity) Verifier() (id int, ok bool) { return i.UID + 1, i.Own }
