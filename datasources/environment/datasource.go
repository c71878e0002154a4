// Package environment is the Terraform data source sandbox_environment.
package environment

import (
	"context"
	"maps"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/duration"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	resource "github.com/sandbox-lease/terraform-provider-sandbox/resources/environment"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// NewDataSource returns an unconfigured data source for one environment.
func NewDataSource() datasource.DataSource {
	return configured.NewDataSource(configured.DataSource[Model]{
		Name: "environment", Title: "Environment", Schema: describe, Read: read,
	})
}

// Model is an environment in the data sources.
type Model struct {
	Name             types.String   `tfsdk:"name"`
	Owner            types.String   `tfsdk:"owner"`
	Type             types.String   `tfsdk:"type"`
	Backend          types.String   `tfsdk:"backend"`
	Instance         types.String   `tfsdk:"instance"`
	Image            types.String   `tfsdk:"image"`
	Network          types.String   `tfsdk:"network"`
	MemoryMB         types.Int64    `tfsdk:"memory_mb"`
	CPUs             types.Float64  `tfsdk:"cpus"`
	PIDs             types.Int64    `tfsdk:"pids_limit"`
	DiskMB           types.Int64    `tfsdk:"disk_mb"`
	TTL              duration.Value `tfsdk:"ttl"`
	MaxLifetime      duration.Value `tfsdk:"max_lifetime"`
	SleepAfter       duration.Value `tfsdk:"sleep_after"`
	SleepMode        types.String   `tfsdk:"sleep_mode"`
	KeepDisk         types.Bool     `tfsdk:"keep_disk"`
	ExpiryConditions types.Set      `tfsdk:"expiry_conditions"`
	Env              types.Map      `tfsdk:"env"`
	Secrets          types.Set      `tfsdk:"secrets"`
	Budget           *Budget        `tfsdk:"budget"`
	WarmPool         *WarmPool      `tfsdk:"warm_pool"`
	Labels           types.Map      `tfsdk:"labels"`
	Epoch            types.Int64    `tfsdk:"epoch"`
	Status           types.String   `tfsdk:"status"`
	EndedBy          types.String   `tfsdk:"ended_by"`
	EndedAt          types.String   `tfsdk:"ended_at"`
	CreatedAt        types.String   `tfsdk:"created_at"`
	UpdatedAt        types.String   `tfsdk:"updated_at"`
	resource.Settings
}

func describe() schema.Schema {
	attributes := Attributes()
	attributes["name"] = schema.StringAttribute{MarkdownDescription: "Name of the environment.", Required: true}
	return schema.Schema{
		MarkdownDescription: "An environment of the ledger, also one that another tool created.",
		Attributes:          attributes,
	}
}

// Attributes returns the schema of an environment. All attributes are computed.
func Attributes() map[string]schema.Attribute {
	text := func(description string) schema.Attribute {
		return schema.StringAttribute{MarkdownDescription: description, Computed: true}
	}
	span := func(description string) schema.Attribute {
		return schema.StringAttribute{
			MarkdownDescription: description + " A duration such as `5m`.",
			Computed:            true,
			CustomType:          duration.Type{},
		}
	}
	figure := func(description string) schema.Attribute {
		return schema.Int64Attribute{MarkdownDescription: description, Computed: true}
	}
	texts := func(description string) schema.Attribute {
		return schema.MapAttribute{MarkdownDescription: description, Computed: true, ElementType: types.StringType}
	}
	all := map[string]schema.Attribute{
		"name":         text("Name of the environment."),
		"owner":        text("Owner, who may change it: an API token, or one Terraform object."),
		"type":         text("`rpg`, `catan`, `coding` or `custom`."),
		"backend":      text("Kind of backend that runs the sandboxes."),
		"instance":     text("Backend instance of the environment, for Docker the engine's id."),
		"image":        text("Image of the sandboxes."),
		"network":      text("What a sandbox may reach: `none`, `restricted` or `full`."),
		"memory_mb":    figure("Memory limit of a sandbox in MiB."),
		"cpus":         schema.Float64Attribute{MarkdownDescription: "CPU limit of a sandbox in cores.", Computed: true},
		"pids_limit":   figure("Largest number of processes and threads of a sandbox."),
		"disk_mb":      figure("Disk size of a sandbox in MB."),
		"ttl":          span("A lease ends this long after its last activity."),
		"max_lifetime": span("A lease ends this long after it began."),
		"sleep_after":  span("An idle sandbox sleeps after this time; `0s` means never."),
		"sleep_mode":   text("`pause` or `stop`."),
		"keep_disk": schema.BoolAttribute{
			MarkdownDescription: "The whole disk of a sandbox is kept while it sleeps. On Docker it always is.", Computed: true,
		},
		"expiry_conditions": schema.SetAttribute{
			MarkdownDescription: "Conditions that end leases of the environment.", Computed: true, ElementType: types.StringType,
		},
		"env": texts("Environment variables of the sandboxes."),
		"secrets": schema.SetAttribute{
			MarkdownDescription: "Names of the secrets in `/run/secrets` of the sandboxes.",
			Computed:            true,
			ElementType:         types.StringType,
		},
		"budget":     budgetAttribute(),
		"warm_pool":  poolAttribute(),
		"labels":     texts("Labels of the environment."),
		"epoch":      figure("Number of the latest reopening by `epoch`."),
		"status":     text("`open`, `ended` (by a condition), `deleting` or `destroyed`."),
		"ended_by":   text("Condition that ended the environment."),
		"ended_at":   text("When it ended. All times are RFC 3339 in UTC."),
		"created_at": text("When it was created."),
		"updated_at": text("When it was last changed."),
	}
	maps.Copy(all, resource.SettingsAttributes())
	return all
}

func read(ctx context.Context, p *configured.Provider, m *Model) (diag.Diagnostics, error) {
	svc, err := p.Open(ctx)
	if err != nil {
		return nil, err
	}
	env, err := p.ReadEnvironment(ctx, svc, m.Name.ValueString())
	if err != nil {
		return nil, err
	}
	var diags diag.Diagnostics
	*m, diags = Flatten(ctx, env)
	return diags, nil
}

// Flatten converts an environment to the model.
func Flatten(ctx context.Context, env sandbox.Environment) (Model, diag.Diagnostics) {
	spec := env.WithDefaults()
	conditions, diags := types.SetValueFrom(ctx, types.StringType, spec.ExpiryConditions)
	variables, d := types.MapValueFrom(ctx, types.StringType, spec.Env)
	diags.Append(d...)
	labels, d := types.MapValueFrom(ctx, types.StringType, spec.Labels)
	diags.Append(d...)
	secrets, d := types.SetValueFrom(ctx, types.StringType, append([]string{}, spec.Secrets...))
	diags.Append(d...)
	settings, d := resource.SettingsOf(ctx, spec)
	diags.Append(d...)
	return Model{
		Name:             types.StringValue(env.ID),
		Owner:            types.StringValue(env.Owner),
		Type:             value.String(spec.Type),
		Backend:          value.String(spec.Backend),
		Instance:         value.String(env.Instance),
		Image:            value.String(spec.Image),
		Network:          value.String(spec.Network),
		MemoryMB:         types.Int64Value(spec.Resources.MemoryMB),
		CPUs:             value.Cores(spec.Resources.CPUMillis),
		PIDs:             types.Int64Value(spec.Resources.PIDs),
		DiskMB:           types.Int64Value(spec.Resources.DiskMB),
		TTL:              duration.New(spec.TTL),
		MaxLifetime:      duration.New(spec.MaxLifetime),
		SleepAfter:       duration.FromPointer(spec.SleepAfter),
		SleepMode:        value.String(spec.SleepMode),
		KeepDisk:         types.BoolValue(spec.KeepDisk),
		ExpiryConditions: conditions,
		Env:              variables,
		Secrets:          secrets,
		Budget:           flattenBudget(env.BudgetUse),
		WarmPool:         flattenPool(spec.WarmPool, env.Pool),
		Labels:           labels,
		Epoch:            types.Int64Value(env.Epoch),
		Status:           value.String(env.Status),
		EndedBy:          value.String(env.EndedBy),
		EndedAt:          value.Time(env.EndedAt),
		CreatedAt:        value.Time(env.CreatedAt),
		UpdatedAt:        value.Time(env.UpdatedAt),
		Settings:         settings,
	}, diags
}
