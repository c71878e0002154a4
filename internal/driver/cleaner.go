package driver

import (
	"context"
	"time"
)

// LeftoverKind says what an object on a backend is for.
type LeftoverKind string

// The kinds of objects that belong to a sandbox or to an environment, beside the sandbox itself.
const (
	LeftoverCarrier   LeftoverKind = "carrier" // a container that only fills volumes
	LeftoverWorkspace LeftoverKind = "workspace"
	LeftoverData      LeftoverKind = "data"
	LeftoverLease     LeftoverKind = "lease"   // says whose a sandbox of a warm pool is
	LeftoverNetwork   LeftoverKind = "network" // of a sandbox whose network is full
	LeftoverGuest     LeftoverKind = "guest"
	LeftoverSeed      LeftoverKind = "seed"
	// Of an environment whose network is restricted.
	LeftoverGateway      LeftoverKind = "gateway"
	LeftoverEgress       LeftoverKind = "egress"
	LeftoverGatewayImage LeftoverKind = "gateway-image"
	// Of a ledger, which has them while it has anything else.
	LeftoverRelay      LeftoverKind = "relay"    // carries connections to sandboxes
	LeftoverChannels   LeftoverKind = "channels" // holds the sockets of sandboxes
	LeftoverRelayImage LeftoverKind = "relay-image"
	// LeftoverChannel is the directory of one sandbox among them. It does not say when it was made, nor of which environment.
	LeftoverChannel LeftoverKind = "channel"
)

// Leftover is an object on a backend that belongs to a sandbox or to an environment, and is left
// over once that is gone.
type Leftover struct {
	// Handle has no SandboxID where the object is shared by an environment, and no EnvironmentID where the whole ledger
	// shares it.
	Handle
	Kind LeftoverKind
	// Name is how the backend knows it. It is unique among the kind.
	Name      string
	CreatedAt time.Time
}

// Cleaner finds and removes what sandboxes and environments have beside themselves. It judges
// nothing: whether an object is wanted is its caller's to know.
type Cleaner interface {
	// Leftovers returns every object on this instance that carries the ledger's label and is no
	// sandbox, those of living sandboxes and environments included.
	Leftovers(ctx context.Context, ledgerID string) ([]Leftover, error)
	// RemoveLeftover removes an object after it has seen that its labels are still those that l
	// says; absent is success. Errors: Conflict when something uses it, or when something else has
	// its name now.
	RemoveLeftover(ctx context.Context, l Leftover) error
}
