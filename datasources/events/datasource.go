// Package events is the Terraform data source sandbox_events.
package events

import (
	"cmp"
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/given"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/labels"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// NewDataSource returns an unconfigured data source for a page of the ledger's events.
func NewDataSource() datasource.DataSource {
	return configured.NewDataSource(configured.DataSource[Model]{
		Name: "events", Title: "Events", Schema: describe, Read: read,
	})
}

// Model is the data source in configuration and state.
type Model struct {
	EnvironmentID types.String `tfsdk:"environment_id"`
	LeaseID       types.String `tfsdk:"lease_id"`
	SandboxID     types.String `tfsdk:"sandbox_id"`
	Type          types.String `tfsdk:"type"`
	Labels        types.Map    `tfsdk:"labels"`
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

func describe() schema.Schema {
	filter := func(description string) schema.Attribute {
		return schema.StringAttribute{
			MarkdownDescription: description,
			Optional:            true,
			Validators:          []validator.String{given.Text{}},
		}
	}
	return schema.Schema{
		MarkdownDescription: "A page of the ledger's append-only event log: the events that match the filters, oldest " +
			"first. Without filters it contains all retained events.",
		Attributes: map[string]schema.Attribute{
			"environment_id": filter("Only events of this environment. Default: all."),
			"lease_id": filter("Only events of this lease, `<agent_did>::<environment_id>`, in all of its generations. " +
				"Default: all."),
			"sandbox_id": filter("Only events of this sandbox. Default: all."),
			"type": filter("Only events of this type, such as `lease.ended`, or with a prefix, such as " +
				"`egress.*`. Default: all."),
			"labels": labels.Filter("Only events of environments and leases"),
			"after_id": schema.Int64Attribute{
				MarkdownDescription: "Only events after this id; `0` starts with the oldest retained event. It is an error if " +
					"the id was never issued, or if later events are no longer retained. Default: `0`.",
				Optional:   true,
				Validators: []validator.Int64{int64validator.AtLeast(0)},
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
			"next_after_id": schema.Int64Attribute{
				MarkdownDescription: "The `after_id` of the next page. Null on the last page.",
				Computed:            true,
			},
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
		"id": figure("Number of the event. Numbers grow, with gaps."),
		"sequence": figure("Number of the event in its sandbox, from 1 without gaps; `0` for events of an " +
			"environment."),
		"sandbox_id":     text("The sandbox, null for events of an environment."),
		"lease_id":       text("Lease of the sandbox."),
		"generation":     figure("Generation of the lease; `0` without one."),
		"environment_id": text("The environment."),
		"type":           text("Type of the event, such as `sandbox.ready` or `lease.ended`."),
		"at":             text("When it happened, RFC 3339 in UTC."),
		"actor": text("Caller that caused it, such as `token:ci` or `secret:5f2a90c1`. Null if the " +
			"service acted on its own."),
		"address": text("Network address of the caller. Null if the request came over no network."),
		"data":    text("Details as JSON, for `jsondecode`. Null if there are none."),
	}
}

func read(ctx context.Context, p *configured.Provider, m *Model) (diag.Diagnostics, error) {
	svc, err := p.Open(ctx)
	if err != nil {
		return nil, err
	}
	filter := m.filter()
	var diags diag.Diagnostics
	if filter.Labels, diags = labels.Selector(ctx, m.Labels); diags.HasError() {
		return diags, nil
	}
	found, err := svc.ListEvents(ctx, filter)
	if err != nil {
		return nil, err
	}
	m.Events, m.NextAfterID = make([]Event, len(found)), types.Int64Null()
	for i, e := range found {
		m.Events[i] = flatten(e)
	}
	if len(found) == filter.Limit {
		m.NextAfterID = types.Int64Value(found[len(found)-1].ID)
	}
	return nil, nil
}

func (m *Model) filter() sandbox.EventFilter {
	return sandbox.EventFilter{
		EnvironmentID: m.EnvironmentID.ValueString(),
		LeaseID:       m.LeaseID.ValueString(),
		SandboxID:     m.SandboxID.ValueString(),
		Type:          m.Type.ValueString(),
		AfterID:       m.AfterID.ValueInt64(),
		Limit:         cmp.Or(int(m.Limit.ValueInt64()), sandbox.MaxPage),
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
