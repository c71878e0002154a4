// Package configured is what a configured provider shares with its resources and data sources.
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

// OwnerPrefix is what the owner of every Terraform object begins with.
const OwnerPrefix = "terraform:"

// Provider is a configured provider. Its functions are safe for concurrent use.
type Provider struct {
	// Open connects to the lease service on first use; every caller gets the same one.
	Open func(ctx context.Context) (Service, error)
	// Images builds and manages images on the Docker engine, to which it connects on first use.
	Images *image.Builder
	// Registry returns the registry of the Cloudflare account, nil where no account is configured. It does not connect.
	Registry func() (Registry, error)
	// Prices returns the price books that estimates are made with, by backend: those that the lease service charges
	// with. Nil while they are not known. Errors: those of Open.
	Prices func(ctx context.Context) (map[sandbox.Backend]sandbox.PriceBook, error)
	// Journal remembers the owners of what is being created; nil remembers nothing.
	Journal *journal.Journal
	// NewOwner issues an owner for one Terraform object: "terraform:<uuid>".
	NewOwner func() string
	// NewMessage issues an id for one condition that Terraform delivers.
	NewMessage func() string
	Now        func() time.Time
	// Reconciler: the service is that of a reconciler, and its address is known.
	Reconciler bool
	// Embedded: the service runs in this process, and allows sandboxes no directory of its host.
	Embedded bool
	// CloudflareAccount: environments may be on Cloudflare. It is unknown unless Embedded.
	CloudflareAccount bool
	// DiskSnapshots: environments that are created on Cloudflare may have keep_disk. It is unknown unless Embedded.
	DiskSnapshots bool

	observations observations
	told         told
	reopened     sync.Map // of ids of environments
	releases     sync.Map // of ids and owners of leases
	budgets      sync.Map // PlannedBudget by id of the environment
}

// Reopen notes that the plan at hand reopens an environment, for the plans of its leases.
func (p *Provider) Reopen(environmentID string) { p.reopened.Store(environmentID, true) }

// IsReopened reports whether the plan at hand, as planned until now, reopens an environment.
func (p *Provider) IsReopened(environmentID string) bool {
	_, ok := p.reopened.Load(environmentID)
	return ok
}

// PlanRelease notes that the plan at hand releases a lease of this owner, for the plan of its environment.
func (p *Provider) PlanRelease(id, owner string) { p.releases.Store([2]string{id, owner}, true) }

// PlansRelease reports whether the plan at hand has planned the release of a lease until now.
func (p *Provider) PlansRelease(l sandbox.Lease) bool {
	_, ok := p.releases.Load([2]string{l.ID, l.Owner})
	return ok
}

// PlannedBudget is the monthly budget that a plan gives an environment.
type PlannedBudget struct {
	Monthly sandbox.NanoUSD // 0 for no limit
	Unknown bool            // known after apply
}

// PlanBudget notes the budget that the plan at hand gives an environment, for the plans of its leases.
func (p *Provider) PlanBudget(environmentID string, b PlannedBudget) {
	p.budgets.Store(environmentID, b)
}

// PlannedBudget returns the budget that the plan at hand gives an environment, if it has planned the environment.
func (p *Provider) PlannedBudget(environmentID string) (PlannedBudget, bool) {
	noted, _ := p.budgets.Load(environmentID)
	b, ok := noted.(PlannedBudget)
	return b, ok
}

// Registry is the part of a registry that belongs to an account, which is spoken to with short-lived credentials.
type Registry interface {
	// Has reports whether an image's name or reference is of that part.
	Has(name string) bool
	// Login returns credentials that hold now.
	Login(ctx context.Context) (username string, password sandbox.Secret, err error)
}

// Service is the lease service and the ledger that it answers from.
type Service struct {
	service.Service
	LedgerID string
}

// From reads what the provider handed to a resource or data source. It is nil as long as the
// provider is not configured, which Terraform does not do in order to validate.
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

// OpenLedger connects like Open and makes sure that the service answers from the ledger that
// Terraform's state was made on; an empty id accepts any. Errors: Conflict, and those of Open.
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
