// Package provider is the Terraform provider sandbox: its configuration, and its connection to the lease service.
package provider

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/list"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/sandbox-lease/terraform-provider-sandbox/actions/expire"
	imagedata "github.com/sandbox-lease/terraform-provider-sandbox/datasources/containerimage"
	costdata "github.com/sandbox-lease/terraform-provider-sandbox/datasources/cost"
	driftdata "github.com/sandbox-lease/terraform-provider-sandbox/datasources/drift"
	environmentdata "github.com/sandbox-lease/terraform-provider-sandbox/datasources/environment"
	environmentsdata "github.com/sandbox-lease/terraform-provider-sandbox/datasources/environments"
	eventsdata "github.com/sandbox-lease/terraform-provider-sandbox/datasources/events"
	leasedata "github.com/sandbox-lease/terraform-provider-sandbox/datasources/lease"
	leasesdata "github.com/sandbox-lease/terraform-provider-sandbox/datasources/leases"
	pricebookdata "github.com/sandbox-lease/terraform-provider-sandbox/datasources/pricebook"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/functions"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/journal"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/spread"
	"github.com/sandbox-lease/terraform-provider-sandbox/resources/containerimage"
	"github.com/sandbox-lease/terraform-provider-sandbox/resources/environment"
	"github.com/sandbox-lease/terraform-provider-sandbox/resources/lease"
)

// Address is the provider's address in the public registry.
const Address = "registry.terraform.io/sandbox-lease/sandbox"

var (
	_ provider.ProviderWithValidateConfig     = (*Provider)(nil)
	_ provider.ProviderWithEphemeralResources = (*Provider)(nil)
	_ provider.ProviderWithFunctions          = (*Provider)(nil)
	_ provider.ProviderWithListResources      = (*Provider)(nil)
	_ provider.ProviderWithActions            = (*Provider)(nil)
	_ io.Closer                               = (*Provider)(nil)
)

// Provider is the provider sandbox. It opens ledger, reconciler and engine on first use, so validation opens none of
// them.
type Provider struct {
	version string
	getenv  func(string) string
	journal *journal.Journal // nil if this process does not run in Terraform's working directory

	mu   sync.Mutex // guards open
	open []*connection
}

// New returns a constructor of the provider. Each provider that it returns is an [io.Closer].
func New(version string) func() provider.Provider {
	return func() provider.Provider { return &Provider{version: version, getenv: os.Getenv} }
}

// Metadata names the provider.
func (p *Provider) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName = "sandbox"
	resp.Version = p.version
}

// ValidateConfig checks the known values of the configuration.
func (p *Provider) ValidateConfig(ctx context.Context, req provider.ValidateConfigRequest,
	resp *provider.ValidateConfigResponse) {
	var m model
	resp.Diagnostics.Append(spread.Config(req.Config).Get(ctx, &m)...)
	if !resp.Diagnostics.HasError() {
		resp.Diagnostics.Append(m.check()...)
	}
}

// Configure reads configuration and environment. It does not connect.
func (p *Provider) Configure(ctx context.Context, req provider.ConfigureRequest, resp *provider.ConfigureResponse) {
	var m model
	resp.Diagnostics.Append(spread.Config(req.Config).Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	s, diags := m.resolve(p.getenv)
	resp.Diagnostics.Append(diags...)
	if resp.Diagnostics.HasError() {
		return
	}
	books, err := s.priceBooks()
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed("Reading Price Book Failed", err, nil)...)
		return
	}
	c := &connection{settings: s, books: books, version: p.version, log: logger(ctx)}
	p.keep(c)
	shared := &configured.Provider{
		Open:       c.Service,
		Images:     image.NewBuilder(c.Engine),
		Registry:   c.Registry,
		Prices:     c.Prices,
		Journal:    p.journal,
		NewOwner:   func() string { return configured.OwnerPrefix + uuid.NewString() },
		NewMessage: func() string { return "terraform-" + uuid.NewString() },
		Now:        time.Now,
		Reconciler: s.remote && len(s.serviceUnknown) == 0,
		Embedded:   s.reconcilerURL == "" && len(s.serviceUnknown) == 0,

		CloudflareAccount: !s.remote && s.cloudflare.AccountID != "",
		DiskSnapshots:     !s.remote && s.cloudflare.SchedulingPolicy == cloudflare.PolicyDurableObject,
	}
	resp.ResourceData, resp.DataSourceData, resp.EphemeralResourceData = shared, shared, shared
	resp.ListResourceData, resp.ActionData = shared, shared
}

// Resources lists the resources.
func (p *Provider) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{
		environment.NewResource,
		lease.NewResource,
		containerimage.NewResource,
		containerimage.NewShortResource,
	}
}

// EphemeralResources lists the ephemeral resources, which CLIs before 1.10 ignore.
func (p *Provider) EphemeralResources(context.Context) []func() ephemeral.EphemeralResource {
	return []func() ephemeral.EphemeralResource{lease.NewEphemeral}
}

// ListResources lists the list resources, which CLIs before 1.14 ignore.
func (p *Provider) ListResources(context.Context) []func() list.ListResource {
	return []func() list.ListResource{environment.NewList, lease.NewList}
}

// Actions lists the actions, which CLIs before 1.14 ignore.
func (p *Provider) Actions(context.Context) []func() action.Action {
	return []func() action.Action{expire.NewAction}
}

// DataSources lists the data sources.
func (p *Provider) DataSources(context.Context) []func() datasource.DataSource {
	return []func() datasource.DataSource{
		environmentdata.NewDataSource,
		environmentsdata.NewDataSource,
		leasedata.NewDataSource,
		leasesdata.NewDataSource,
		costdata.NewDataSource,
		driftdata.NewDataSource,
		eventsdata.NewDataSource,
		pricebookdata.NewDataSource,
		imagedata.NewDataSource,
	}
}

// Functions lists the functions.
func (p *Provider) Functions(context.Context) []func() function.Function { return functions.All() }

func (p *Provider) keep(c *connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = append(p.open, c)
}

// Close closes all connections. Sandboxes keep running.
func (p *Provider) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, c := range p.open {
		errs = append(errs, c.Close())
	}
	p.open = nil
	return errors.Join(errs...)
}
