package lease

import (
	"context"
	"maps"

	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/duration"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Model is a lease in the data sources.
type Model struct {
	ID               types.String   `tfsdk:"id"`
	AgentDID         types.String   `tfsdk:"agent_did"`
	EnvironmentID    types.String   `tfsdk:"environment_id"`
	Owner            types.String   `tfsdk:"owner"`
	Generation       types.Int64    `tfsdk:"generation"`
	Status           types.String   `tfsdk:"status"`
	SandboxID        types.String   `tfsdk:"sandbox_id"`
	Phase            types.String   `tfsdk:"phase"`
	SandboxState     types.String   `tfsdk:"sandbox_state"`
	StateChangedAt   types.String   `tfsdk:"state_changed_at"`
	StopReason       types.String   `tfsdk:"stop_reason"`
	ErrorCode        types.String   `tfsdk:"error_code"`
	ErrorMessage     types.String   `tfsdk:"error_message"`
	Backend          types.String   `tfsdk:"backend"`
	Instance         types.String   `tfsdk:"instance"`
	ContainerID      types.String   `tfsdk:"container_id"`
	WorkspacePath    types.String   `tfsdk:"workspace_path"`
	Image            types.String   `tfsdk:"image"`
	MemoryMB         types.Int64    `tfsdk:"memory_mb"`
	CPUs             types.Float64  `tfsdk:"cpus"`
	PIDs             types.Int64    `tfsdk:"pids_limit"`
	TTL              duration.Value `tfsdk:"ttl"`
	MaxLifetime      duration.Value `tfsdk:"max_lifetime"`
	SleepAfter       duration.Value `tfsdk:"sleep_after"`
	SleepMode        types.String   `tfsdk:"sleep_mode"`
	ExpiryConditions types.Set      `tfsdk:"expiry_conditions"`
	Labels           types.Map      `tfsdk:"labels"`
	LeasedAt         types.String   `tfsdk:"leased_at"`
	ReadyAt          types.String   `tfsdk:"ready_at"`
	StartedAt        types.String   `tfsdk:"started_at"`
	LastActivity     types.String   `tfsdk:"last_activity"`
	ExpiresAt        types.String   `tfsdk:"expires_at"`
	ObservedAt       types.String   `tfsdk:"observed_at"`
	EndedAt          types.String   `tfsdk:"ended_at"`
	EndedBy          types.String   `tfsdk:"ended_by"`
	EndReason        types.String   `tfsdk:"end_reason"`
	DestroyedAt      types.String   `tfsdk:"destroyed_at"`
	LastError        types.String   `tfsdk:"last_error"`
	Cost             types.String   `tfsdk:"cost_usd"`
	Companions       []Companion    `tfsdk:"companions"`
}

// Flatten converts a lease to the model.
func Flatten(ctx context.Context, l sandbox.Lease) (Model, diag.Diagnostics) {
	conditions, diags := types.SetValueFrom(ctx, types.StringType, l.ExpiryConditions)
	labels, d := types.MapValueFrom(ctx, types.StringType, l.Labels)
	diags.Append(d...)
	return Model{
		ID:               types.StringValue(l.ID),
		AgentDID:         types.StringValue(l.AgentDID),
		EnvironmentID:    types.StringValue(l.EnvironmentID),
		Owner:            types.StringValue(l.Owner),
		Generation:       types.Int64Value(l.Generation),
		Status:           value.String(l.Status),
		SandboxID:        value.String(l.SandboxID),
		Phase:            value.String(l.Phase),
		SandboxState:     value.String(l.SandboxState),
		StateChangedAt:   value.Time(l.StateChangedAt),
		StopReason:       value.String(l.StopReason),
		ErrorCode:        value.String(l.ErrorCode),
		ErrorMessage:     value.String(l.ErrorMessage),
		Backend:          value.String(l.Backend),
		Instance:         value.String(l.Instance),
		ContainerID:      value.String(l.ContainerID),
		WorkspacePath:    value.String(l.WorkspacePath),
		Image:            value.String(l.Image),
		MemoryMB:         types.Int64Value(l.Resources.MemoryMB),
		CPUs:             value.Cores(l.Resources.CPUMillis),
		PIDs:             types.Int64Value(l.Resources.PIDs),
		TTL:              duration.New(l.TTL),
		MaxLifetime:      duration.New(l.MaxLifetime),
		SleepAfter:       duration.New(l.SleepAfter),
		SleepMode:        value.String(l.SleepMode),
		ExpiryConditions: conditions,
		Labels:           labels,
		LeasedAt:         value.Time(l.LeasedAt),
		ReadyAt:          value.Time(l.ReadyAt),
		StartedAt:        value.Time(l.StartedAt),
		LastActivity:     value.Time(l.LastActivity),
		ExpiresAt:        value.Time(l.ExpiresAt),
		ObservedAt:       value.Time(l.ObservedAt),
		EndedAt:          value.Time(l.EndedAt),
		EndedBy:          value.String(l.EndedBy),
		EndReason:        value.String(l.EndReason),
		DestroyedAt:      value.Time(l.DestroyedAt),
		LastError:        value.String(l.LastError),
		Cost:             types.StringValue(l.Cost.String()),
		Companions:       flattenCompanions(l.Companions),
	}, diags
}

// Attributes returns the schema of a lease. All attributes are computed.
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
	attributes := map[string]schema.Attribute{
		"id":             text("`<agent_did>::<environment_id>`."),
		"agent_did":      text("Agent that holds the lease."),
		"environment_id": text("Name of the environment."),
		"owner":          text("Owner, who may renew and release the lease: an API token, or one Terraform object."),
		"generation":     figure("Number of the current sandbox of the lease, from 1."),
		"status":         text("`pending`, `active`, `expired` (ended, the sandbox may still exist) or `destroyed`."),
		"sandbox_id":     text("Id of the sandbox."),
		"phase":          text("Last observed state of the sandbox: `pending`, `awake`, `asleep` or `gone`."),
		"backend":        text("Kind of the backend that runs the sandbox."),
		"instance":       text("Backend instance that runs it, for Docker the engine's id."),
		"container_id": text("Docker's id of the sandbox's container, while there is one that the reconciler has seen. " +
			"Null on Cloudflare."),
		"workspace_path": text("Directory in which commands start: always `/workspace`."),
		"image":          text("Image of the sandbox."),
		"memory_mb":      figure("Memory limit in MiB."),
		"cpus":           schema.Float64Attribute{MarkdownDescription: "CPU limit in cores.", Computed: true},
		"pids_limit":     figure("Largest number of processes and threads."),
		"ttl":            span("The lease ends this long after its last activity."),
		"max_lifetime":   span("The lease ends this long after it began."),
		"sleep_after":    span("The sandbox sleeps after it was idle for this long; `0s` means never."),
		"sleep_mode":     text("`pause` or `stop`."),
		"labels": schema.MapAttribute{
			MarkdownDescription: "Labels of the lease and of its environment. Null without any.",
			Computed:            true,
			ElementType:         types.StringType,
		},
		"expiry_conditions": schema.SetAttribute{
			MarkdownDescription: "Conditions that end the lease.", Computed: true, ElementType: types.StringType,
		},
	}
	maps.Copy(attributes, map[string]schema.Attribute{
		"sandbox_state": text("State of the sandbox: `pending`, `ready`, `asleep`, `stopped`, `failed`, `deleting` " +
			"or `deleted`. The guide *Lifecycle* explains them."),
		"state_changed_at": text("When `sandbox_state` last changed."),
		"stop_reason": text("Why the sandbox is asleep or stopped: `idle_ttl`, `request`, `warm_pool`, " +
			"`last_save` or `outside`."),
		"error_code":    text("Why the sandbox failed, as a code such as `sandbox_out_of_memory`."),
		"error_message": text("Why the sandbox failed, as text."),
		"leased_at": text("When this generation began. All times are RFC 3339 in UTC, and null if the event " +
			"has not happened."),
		"ready_at":      text("When the sandbox first accepted commands."),
		"started_at":    text("When the sandbox was last started or woken. Null unless it is awake."),
		"last_activity": text("When the sandbox was last used."),
		"expires_at":    text("When the lease ends if it is not used before. Every use moves it."),
		"observed_at":   text("When the backend last reported on the sandbox."),
		"ended_at":      text("When the lease ended."),
		"ended_by": text("Kind of reason: `condition`, `ttl`, `max_lifetime`, `budget`, `release`, `failed`, " +
			"`crashed`, `vanished`, `environment` or `admin`."),
		"end_reason":   text("The reason as text."),
		"destroyed_at": text("When the backend confirmed that the sandbox is gone."),
		"last_error":   text("Error of the last attempt, while the service retries."),
		"cost_usd":     text("Cost of this generation so far, in US dollars, at list price."),
		"companions":   companionsAttribute(),
	})
	return attributes
}
