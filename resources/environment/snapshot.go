package environment

import (
	"context"
	"fmt"
	"reflect"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/collection"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/duration"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/given"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Snapshot is the state attribute.
type Snapshot struct {
	Scope            types.String   `tfsdk:"scope"`
	CheckpointEvery  duration.Value `tfsdk:"checkpoint_every"`
	OnPersistFailure types.String   `tfsdk:"on_persist_failure"`
	RetryFor         duration.Value `tfsdk:"retry_for"`
	SizeLimitMB      types.Int64    `tfsdk:"size_limit_mb"`
}

func snapshotAttribute() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "Snapshots of `/data`, with which the next generation of a lease starts, in the bucket of " +
			"the provider or reconciler (`state_url`). Changed in place, in live leases too, except `scope`. Default: " +
			"`/data` ends with its sandbox.",
		Attributes: map[string]schema.Attribute{
			"scope": choice("Scope of a snapshot: `agent_environment`, an agent in this environment, or `agent`, an agent "+
				"in all environments that tokens with the same patterns lease for it.",
				string(sandbox.ScopeAgentEnvironment)),
			"checkpoint_every": durationAttribute("Shortest time between snapshots while the lease is active, at least `1s`. "+
				"Only changes by commands and file transfers are saved. `0s` turns that off.",
				sandbox.DefaultCheckpointEvery),
			"on_persist_failure": choice("What happens to a sandbox whose last snapshot fails: `retry` keeps it, frozen, "+
				"for `retry_for`; `discard` destroys it within seconds.",
				string(sandbox.PersistRetry)),
			"retry_for": durationAttribute(fmt.Sprintf("Time for which `retry` keeps the frozen sandbox. `1s` to `%s`.",
				duration.New(sandbox.MaxRetryFor).ValueString()), sandbox.DefaultRetryFor),
			"size_limit_mb": limit(fmt.Sprintf("Largest snapshot, unpacked, in MiB, 1 to %d.",
				sandbox.MaxSnapshotLimitMB), sandbox.DefaultSnapshotLimitMB),
		},
	}
}

// contentAttributes returns the attributes for the content of /data.
func contentAttributes() map[string]schema.Attribute {
	bound := fmt.Sprintf("`initial_state` and `skills` have at most %d bytes together. Changed in place, for new "+
		"generations. Default: none.", sandbox.MaxInitialDataBytes)
	return map[string]schema.Attribute{
		"initial_state": schema.MapAttribute{
			MarkdownDescription: "Text files by path relative to `/data`, such as `character.json`, for sandboxes that " +
				"start without a snapshot. " + bound,
			Optional:    true,
			ElementType: types.StringType,
			Validators:  []validator.Map{given.NoNulls{}},
		},
		"skills": schema.MapAttribute{
			MarkdownDescription: "Prompts by skill, written to `/data/skills/<skill>/prompt.md` at the start of each " +
				"generation. A name is 1 to 63 characters of `a-z`, `0-9`, `_` and `-`. " + bound,
			Optional:    true,
			ElementType: types.StringType,
			Validators:  []validator.Map{given.NoNulls{}},
		},
	}
}

func (s *Snapshot) expand() *sandbox.SnapshotSpec {
	if s == nil {
		return nil
	}
	return &sandbox.SnapshotSpec{
		Scope:            sandbox.SnapshotScope(s.Scope.ValueString()),
		CheckpointEvery:  s.CheckpointEvery.Pointer(),
		OnPersistFailure: sandbox.PersistFailure(s.OnPersistFailure.ValueString()),
		RetryFor:         orZero(s.RetryFor),
		SizeLimitMB:      s.SizeLimitMB.ValueInt64(),
	}
}

// flattenSnapshot keeps the model's object if it matches the environment.
func (m *Model) flattenSnapshot(ctx context.Context, spec sandbox.EnvironmentSpec, diags *diag.Diagnostics) {
	m.InitialData = collection.TextMapLike(ctx, spec.InitialData, m.InitialData, diags)
	m.Skills = collection.TextMapLike(ctx, spec.Skills, m.Skills, diags)
	now := sandbox.EnvironmentSpec{Snapshot: m.Snapshot.expand()}.WithDefaults()
	if reflect.DeepEqual(now.Snapshot, spec.Snapshot) {
		return
	}
	m.Snapshot = nil
	if s := spec.Snapshot; s != nil {
		m.Snapshot = &Snapshot{
			Scope:            types.StringValue(string(s.Scope)),
			CheckpointEvery:  duration.FromPointer(s.CheckpointEvery),
			OnPersistFailure: types.StringValue(string(s.OnPersistFailure)),
			RetryFor:         duration.New(s.RetryFor),
			SizeLimitMB:      types.Int64Value(s.SizeLimitMB),
		}
	}
}

// notEmpty makes the schema refuse an empty string, which the domain would read as the default.
func notEmpty(a schema.StringAttribute) schema.StringAttribute {
	a.Validators = append(a.Validators, given.Text{})
	return a
}

// choice returns an attribute whose allowed values the domain checks.
func choice(description, def string) schema.StringAttribute {
	return schema.StringAttribute{
		MarkdownDescription: description + " Default: `" + def + "`.",
		Optional:            true,
		Computed:            true,
		Default:             stringdefault.StaticString(def),
	}
}
