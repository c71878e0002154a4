// Package drift is the Terraform data source sandbox_drift.
package drift

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/given"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// NewDataSource returns an unconfigured data source for drift findings.
func NewDataSource() datasource.DataSource {
	return configured.NewDataSource(configured.DataSource[Model]{
		Name: "drift", Title: "Drift", Schema: describe, Read: read,
	})
}

// Model is the data source in configuration and state.
type Model struct {
	EnvironmentID types.String `tfsdk:"environment_id"`
	LeaseID       types.String `tfsdk:"lease_id"`
	Kind          types.String `tfsdk:"kind"`
	Status        types.String `tfsdk:"status"`
	Findings      []Finding    `tfsdk:"findings"`
}

// Finding is one difference between ledger and backend.
type Finding struct {
	ID            types.Int64  `tfsdk:"id"`
	Kind          types.String `tfsdk:"kind"`
	EnvironmentID types.String `tfsdk:"environment_id"`
	LeaseID       types.String `tfsdk:"lease_id"`
	SandboxID     types.String `tfsdk:"sandbox_id"`
	Instance      types.String `tfsdk:"instance"`
	Field         types.String `tfsdk:"field"`
	Expected      types.String `tfsdk:"expected"`
	Observed      types.String `tfsdk:"observed"`
	FirstSeenAt   types.String `tfsdk:"first_seen_at"`
	LastSeenAt    types.String `tfsdk:"last_seen_at"`
	ResolvedAt    types.String `tfsdk:"resolved_at"`
	Resolution    types.String `tfsdk:"resolution"`
}

func describe() schema.Schema {
	return schema.Schema{
		MarkdownDescription: "Recorded differences between ledger and backend: the newest 1000, newest first. " +
			"Without a reconciler, only a read of a lease by Terraform finds them.",
		Attributes: map[string]schema.Attribute{
			"environment_id": schema.StringAttribute{
				MarkdownDescription: "Only findings in this environment. Default: all.",
				Optional:            true,
				Validators:          []validator.String{given.Text{}},
			},
			"lease_id": schema.StringAttribute{
				MarkdownDescription: "Only findings about this lease, `<agent_did>::<environment_id>`. Default: all.",
				Optional:            true,
				Validators:          []validator.String{given.Text{}},
			},
			"kind": schema.StringAttribute{
				MarkdownDescription: "Only findings of this kind: `vanished`, `stopped`, `out_of_memory`, `changed`, `orphan`, " +
					"`leftover` or `usage`. Default: all.",
				Optional:   true,
				Validators: []validator.String{oneOf(sandbox.DriftKinds)},
			},
			"status": schema.StringAttribute{
				MarkdownDescription: "Only `open` or only `resolved` findings. Default: both.",
				Optional:            true,
				Validators:          []validator.String{oneOf(sandbox.DriftStatuses)},
			},
			"findings": schema.ListNestedAttribute{
				MarkdownDescription: "The findings.",
				Computed:            true,
				NestedObject:        schema.NestedAttributeObject{Attributes: attributes()},
			},
		},
	}
}

func oneOf[T ~string](values []T) validator.String {
	allowed := make([]string, len(values))
	for i, v := range values {
		allowed[i] = string(v)
	}
	return stringvalidator.OneOf(allowed...)
}

func attributes() map[string]schema.Attribute {
	text := func(description string) schema.Attribute {
		return schema.StringAttribute{MarkdownDescription: description, Computed: true}
	}
	return map[string]schema.Attribute{
		"id": schema.Int64Attribute{MarkdownDescription: "Number of the finding.", Computed: true},
		"kind": text("`vanished` (the backend no longer has the sandbox), `stopped` (it stopped on its own), " +
			"`out_of_memory`, `changed` (a limit, the image or its state has changed), `orphan` (a container with this " +
			"ledger's label that the ledger does not know), `leftover` (a volume, network or helper of a sandbox or " +
			"environment that is gone), or `usage` (the backend's usage figures differ from the ledger's; costs do not " +
			"change)."),
		"environment_id": text("Environment of the finding, null if it is not about exactly one."),
		"lease_id":       text("Lease of the sandbox."),
		"sandbox_id":     text("The sandbox."),
		"instance":       text("Backend instance of the finding."),
		"field":          text("What differs, such as `memory_mb`, `image` or `state`."),
		"expected":       text("Value in the ledger."),
		"observed":       text("Value on the backend."),
		"first_seen_at":  text("When it was first seen. All times are RFC 3339 in UTC."),
		"last_seen_at":   text("When it was last seen."),
		"resolved_at":    text("When it was resolved, null while it is open."),
		"resolution":     text("How it was resolved."),
	}
}

func read(ctx context.Context, p *configured.Provider, m *Model) (diag.Diagnostics, error) {
	svc, err := p.Open(ctx)
	if err != nil {
		return nil, err
	}
	found, err := svc.ListDrift(ctx, sandbox.DriftFilter{
		EnvironmentID: m.EnvironmentID.ValueString(),
		LeaseID:       m.LeaseID.ValueString(),
		Kind:          sandbox.DriftKind(m.Kind.ValueString()),
		Status:        sandbox.DriftStatus(m.Status.ValueString()),
		Limit:         sandbox.MaxPage,
	})
	m.Findings = make([]Finding, len(found))
	for i, f := range found {
		m.Findings[i] = flatten(f)
	}
	return nil, err
}

func flatten(f sandbox.DriftFinding) Finding {
	return Finding{
		ID:            types.Int64Value(f.ID),
		Kind:          value.String(f.Kind),
		EnvironmentID: value.String(f.EnvironmentID),
		LeaseID:       value.String(f.LeaseID),
		SandboxID:     value.String(f.SandboxID),
		Instance:      value.String(f.Instance),
		Field:         value.String(f.Field),
		Expected:      value.String(f.Expected),
		Observed:      value.String(f.Observed),
		FirstSeenAt:   value.Time(f.FirstSeenAt),
		LastSeenAt:    value.Time(f.LastSeenAt),
		ResolvedAt:    value.Time(f.ResolvedAt),
		Resolution:    value.String(f.Resolution),
	}
}
