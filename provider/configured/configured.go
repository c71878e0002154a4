// Package configured is the configured provider that resources and data sources share.
package configured

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/service"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/journal"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// OwnerPrefix begins the owner of every Terraform object.
const OwnerPrefix = "terraform:"

// Provider is a configured provider. Its functions are safe for concurrent use.
type Provider struct {
	// Open connects to the lease service on first use; every caller gets the same one.
	Open func(ctx context.Context) (Service, error)
	// Images builds and manages images on the Docker engine, to which it connects on first use.
	Images *image.Builder
	// Registry returns the registry of the Cloudflare account, or nil without an account. It does not connect.
	Registry func() (Registry, error)
	// Prices returns the price books for estimates, by backend. The lease service charges by the same books. It returns
	// nil while they are unknown. Errors: those of Open.
	Prices func(ctx context.Context) (map[sandbox.Backend]sandbox.PriceBook, error)
	// Journal remembers the owners of pending creations. A nil Journal remembers nothing.
	Journal *journal.Journal
	// NewOwner issues an owner for one Terraform object: "terraform:<uuid>".
	NewOwner func() string
	// NewMessage issues an id for one condition that Terraform delivers.
	NewMessage func() string
	Now        func() time.Time
	// Reconciler is set if the service is a reconciler whose address is known.
	Reconciler bool
	// Embedded is set if the service runs in this process. It then gives sandboxes no access to host directories.
	Embedded bool
	// CloudflareAccount is set if environments may be on Cloudflare. It has no meaning unless Embedded.
	CloudflareAccount bool
	// DiskSnapshots is set if new environments on Cloudflare may have keep_disk. It has no meaning unless Embedded.
	DiskSnapshots bool

	observations observations
	told         told
	reopenings   sync.Map // Reopening by id of the environment
	releases     sync.Map // by id and owner of the lease
	budgets      sync.Map // PlannedBudget by id of the environment
	made         sync.Map // images of the current apply
}

// Reopening is what a plan does about the end of an environment.
type Reopening int

const (
	// NotReopened also means not planned yet.
	NotReopened Reopening = iota
	// Reopened or created.
	Reopened
	// MaybeReopened means that the epoch is known after apply.
	MaybeReopened
)

// Reopen notes what the current plan does about the end of an environment, for the plans of its leases.
func (p *Provider) Reopen(environmentID string, r Reopening) { p.reopenings.Store(environmentID, r) }

// Reopening returns what the current plan, so far, does about the end of an environment.
func (p *Provider) Reopening(environmentID string) Reopening {
	noted, _ := p.reopenings.Load(environmentID)
	r, _ := noted.(Reopening)
	return r
}

// PlanRelease notes that the current plan releases this owner's lease, for the plan of its environment.
func (p *Provider) PlanRelease(id, owner string) { p.releases.Store([2]string{id, owner}, true) }

// PlansRelease reports whether the current plan, so far, releases a lease.
func (p *Provider) PlansRelease(l sandbox.Lease) bool {
	_, ok := p.releases.Load([2]string{l.ID, l.Owner})
	return ok
}

// PlannedBudget is the monthly budget that a plan gives an environment.
type PlannedBudget struct {
	Monthly sandbox.NanoUSD // 0 means no limit
	Unknown bool            // known after apply
}

// PlanBudget notes the budget that the current plan gives an environment, for the plans of its leases.
func (p *Provider) PlanBudget(environmentID string, b PlannedBudget) {
	p.budgets.Store(environmentID, b)
}

// PlannedBudget returns the budget that the current plan gives an environment. It returns false if it has not planned
// the environment yet.
func (p *Provider) PlannedBudget(environmentID string) (PlannedBudget, bool) {
	noted, _ := p.budgets.Load(environmentID)
	b, ok := noted.(PlannedBudget)
	return b, ok
}

// Made notes what the current apply has made: the id or digest of an image, or a name that has it.
func (p *Provider) Made(image string) { p.made.Store(image, true) }

// HasMade reports whether the current apply, so far, has made it.
func (p *Provider) HasMade(image string) bool {
	_, ok := p.made.Load(image)
	return ok
}

// Registry is an account's part of a registry. Its credentials are short-lived.
type Registry interface {
	// Has reports whether an image's name or reference belongs to the account's part.
	Has(name string) bool
	// Login returns credentials that are valid now.
	Login(ctx context.Context) (username string, password sandbox.Secret, err error)
}

// Service is the lease service and the ledger that it answers from.
type Service struct {
	service.Service
	LedgerID string
}

// From returns the provider that a resource or data source receives. It returns nil while the provider is not
// configured: Terraform validates without configuring it.
func From(providerData any) (*Provider, diag.Diagnostics) {
	if providerData == nil {
		return nil, nil
	}
	p, ok := providerData.(*Provider)
	if !ok {
		return nil, diag.Diagnostics{diag.NewErrorDiagnostic("Configuring Resource Failed",
			fmt.Sprintf("The provider handed over a %T. This is a defect of the provider; please report it.", providerData))}
	}
	return p, nil
}

// OpenLedger connects like Open, and checks that the service uses the ledger of Terraform's state. An empty id accepts
// any ledger. Errors: Conflict, and those of Open.
func (p *Provider) OpenLedger(ctx context.Context, ledgerID string) (Service, error) {
	svc, err := p.Open(ctx)
	if err != nil {
		return Service{}, err
	}
	if ledgerID != "" && svc.LedgerID != ledgerID {
		return Service{}, sandbox.Errorf(sandbox.Conflict,
			"Terraform's state belongs to ledger %s, but the provider reaches ledger %s. Point the provider at the earlier "+
				"ledger or reconciler, or move the object with terraform state rm and import", ledgerID, svc.LedgerID)
	}
	return svc, nil
}
