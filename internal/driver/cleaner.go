package driver

import (
	"context"
	"time"
)

// DependentKind is the purpose of an object on a backend.
type DependentKind string

// The kinds of objects that belong to a sandbox or an environment, besides the sandbox itself.
const (
	DependentPopulator   DependentKind = "carrier" // a container that only fills volumes
	DependentWorkspace   DependentKind = "workspace"
	DependentData        DependentKind = "data"
	DependentCompanion   DependentKind = "companion"    // a container that shares the network of a sandbox
	DependentLease       DependentKind = "lease"        // holds the lease of a sandbox from a warm pool
	DependentImageVolume DependentKind = "image-volume" // at a path that the image declares as a volume
	DependentNetwork     DependentKind = "network"      // for network full
	DependentGuest       DependentKind = "guest"
	DependentTemplate    DependentKind = "seed"
	// Of an environment with a restricted network.
	DependentGateway      DependentKind = "gateway"
	DependentEgress       DependentKind = "egress"
	DependentGatewayImage DependentKind = "gateway-image"
	// Of a ledger. They exist as long as the ledger has any other object.
	DependentRelay      DependentKind = "relay"    // carries connections to sandboxes
	DependentChannels   DependentKind = "channels" // holds the sockets of sandboxes
	DependentRelayImage DependentKind = "relay-image"
	// DependentChannel is one sandbox's directory in the channels volume. Its creation time and environment are unknown.
	DependentChannel DependentKind = "channel"
)

// Dependent is an object on a backend that belongs to a sandbox or an environment. It is an orphan once its owner is
// gone.
type Dependent struct {
	// Handle has no SandboxID if the sandboxes of an environment share the object, and no EnvironmentID if
	// the whole ledger shares it.
	Handle
	Kind DependentKind
	// Name is its name on the backend, unique within the kind.
	Name      string
	CreatedAt time.Time
}

// Cleaner lists and removes dependents. The caller decides which of them are orphans.
type Cleaner interface {
	// Dependents returns every object on this instance that has the ledger's label and is not a sandbox,
	// including those of live sandboxes and environments.
	Dependents(ctx context.Context, ledgerID string) ([]Dependent, error)
	// RemoveDependent removes an object if its labels still match d. An absent object is success. Errors: Conflict if the
	// object is in use, or if another object now has its name.
	RemoveDependent(ctx context.Context, d Dependent) error
}
