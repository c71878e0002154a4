// Package events is the Terraform data source sandbox_events.
package events

import (
	"cmp"
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var _ datasource.DataSourceWithConfigure = (*DataSource)(nil)

// NewDataSource returns the data source, not configured.
func NewDataSource() datasource.DataSource { return &DataSource{} }

// DataSource reads a page of the ledger's events.
type DataSource struct {
	configured.DataSource
}

// Model is the data source in configuration and state.
type Model struct {
	EnvironmentID types.String `tfsdk:"environment_id"`
	LeaseID       types.String `tfsdk:"lease_id"`
	SandboxID     types.String `tfsdk:"sandbox_id"`
	Type          types.String `tfsdk:"type"`
	AfterID       types.Int64  `tfsdk:"after_id"`
	Limit         types.Int64  `tfsdk:"limit"`
	Events        []Event      `tfsdk:"events"`
	NextAfterID   types.Int64  `tfsdk:"next_after_id"`
}

// Event is one entry of the log.
type Event struct {
	ID            types.Int64  `tfsdk:"id"`
	Sequence      types.Int64  `tfsdk:"sequence"`
	SandboxID     types.String `tfsdk:"sandbox_id"`
	LeaseID       types.String `tfsdk:"lease_id"`
	Generation    types.Int64  `tfsdk:"generation"`
	EnvironmentID types.String `tfsdk:"environment_id"`
	Type          types.String `tfsdk:"type"`
	At            types.String `tfsdk:"at"`
	Actor         types.String `tfsdk:"actor"`
	Address       types.String `tfsdk:"address"`
	Data          types.String `tfsdk:"data"`
}

// Metadata names the data source.
func (d *DataSource) Metadata(_ context.Context, req datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = req.ProviderTypeName + "_events"
}

// Schema describes the data source.
func (d *DataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	filter := func(description string) schema.Attribute {
		return schema.StringAttribute{MarkdownDescription: description, Optional: true}
	}
	resp.Schema = schema.Schema{
		MarkdownDescription: "What happened, from the ledger's append-only log: the events that a filter selects, oldest first, one page of them. Without filters all are selected that are retained.",
		Attributes: map[string]schema.Attribute{
			"environment_id": filter("Only events of this environment. Default: of all."),
			"lease_id":       filter("Only events of this lease, `<agent_did>::<environment_id>`, in all of its generations. Default: of all."),
			"sandbox_id":     filter("Only events of this sandbox. Default: of all."),
			"type":           filter("Only events of this type, such as `lease.ended`, or of all that begin alike, such as `egress.*`. Default: of all."),
			"after_id": schema.Int64Attribute{
				MarkdownDescription: "Only events after this one; `0` begins with the oldest that is retained. An event after which not all are retained, or that never was, is an error. Default: `0`.",
				Optional:            true,
				Validators:          []validator.Int64{int64validator.AtLeast(0)},
			},
			"limit": schema.Int64Attribute{
				MarkdownDescription: "Largest number of events to read, `1` to `1000`. Default: `1000`.",
				Optional:            true,
				Validators:          []validator.Int64{int64validator.Between(1, sandbox.MaxPage)},
			},
			"events": schema.ListNestedAttribute{
				MarkdownDescription: "The events.",
				Computed:            true,
				NestedObject:        schema.NestedAttributeObject{Attributes: attributes()},
			},
			"next_after_id": schema.Int64Attribute{MarkdownDescription: "The `after_id` of the next page. Null when this is the last one.", Computed: true},
		},
	}
}

func attributes() map[string]schema.Attribute {
	text := func(description string) schema.Attribute {
		return schema.StringAttribute{MarkdownDescription: description, Computed: true}
	}
	figure := func(description string) schema.Attribute {
		return schema.Int64Attribute{MarkdownDescription: description, Computed: true}
	}
	return map[string]schema.Attribute{
		"id":             figure("Number of the event; it grows, but is not dense."),
		"sequence":       figure("Counts the events of one sandbox from 1 without gaps; `0` for events of an environment."),
		"sandbox_id":     text("The sandbox, null for events of an environment."),
		"lease_id":       text("Lease of the sandbox."),
		"generation":     figure("Generation of the lease; `0` without one."),
		"environment_id": text("The environment."),
		"type":           text("What happened, such as `sandbox.ready` or `lease.ended`."),
		"at":             text("When it happened, RFC 3339 in UTC."),
		"actor":          text("On whose behalf it happened, such as `token:ci` or `secret:5f2a90c1`. Null where the service did it by itself."),
		"address":        text("The address that it was asked from. Null where nobody asked over the network."),
		"data":           text("More about it, as JSON, for `jsondecode`. Null when there is no more."),
	}
}

// Read reads the events.
func (d *DataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m Model
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	filter := m.filter()
	svc, err := d.Provider.Open(ctx)
	var found []sandbox.Event
	if err == nil {
		found, err = svc.ListEvents(ctx, filter)
	}
	if err != nil {
		resp.Diagnostics.Append(diagnose.Failed("Reading Events Failed", err, nil)...)
		return
	}
	m.Events, m.NextAfterID = make([]Event, len(found)), types.Int64Null()
	for i, e := range found {
		m.Events[i] = flatten(e)
	}
	if len(found) == filter.Limit {
		m.NextAfterID = types.Int64Value(found[len(found)-1].ID)
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

func (m *Model) filter() sandbox.EventFilter {
	return sandbox.EventFilter{
		EnvironmentID: m.EnvironmentID.ValueString(), LeaseID: m.LeaseID.ValueString(), SandboxID: m.SandboxID.ValueString(),
		Type: m.Type.ValueString(), AfterID: m.AfterID.ValueInt64(), Limit: cmp.Or(int(m.Limit.ValueInt64()), sandbox.MaxPage),
	}
}

func flatten(e sandbox.Event) Event {
	return Event{
		ID:            types.Int64Value(e.ID),
		Sequence:      types.Int64Value(e.Sequence),
		SandboxID:     value.String(e.SandboxID),
		LeaseID:       value.String(e.LeaseID),
		Generation:    types.Int64Value(e.Generation),
		EnvironmentID: value.String(e.EnvironmentID),
		Type:          value.String(e.Type),
		At:            value.Time(e.At),
		Actor:         value.String(e.Actor),
		Address:       value.String(e.Address),
		Data:          value.String(string(e.Data)),
	}
}
