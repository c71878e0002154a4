package environment

import (
	"context"
	"fmt"
	"reflect"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/duration"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// State is the state block.
type State struct {
	Scope            types.String   `tfsdk:"scope"`
	CheckpointEvery  duration.Value `tfsdk:"checkpoint_every"`
	OnPersistFailure types.String   `tfsdk:"on_persist_failure"`
	RetryFor         duration.Value `tfsdk:"retry_for"`
	SizeLimitMB      types.Int64    `tfsdk:"size_limit_mb"`
}

func stateBlock() schema.Block {
	return schema.SingleNestedBlock{
		MarkdownDescription: "Keeps `/data` from one generation of a lease to the next, in the service's bucket (`state_url` of the provider or of the reconciler). " +
			"Changed in place: living leases follow in all but `scope`. Default: `/data` ends with its sandbox.",
		Attributes: map[string]schema.Attribute{
			"scope": choice("Whose state it is: `agent_environment` of an agent in this environment, or `agent` of an agent in all environments, as far as tokens with the same patterns lease for it.", string(sandbox.ScopeAgentEnvironment)),
			"checkpoint_every": durationAttribute("What commands and files changed is saved at most this often while the lease lives, at least `1s`; `0s` turns that off.",
				sandbox.DefaultCheckpointEvery),
			"on_persist_failure": choice("What becomes of a sandbox whose last state cannot be saved: `retry` keeps it, frozen, for `retry_for`; `discard` destroys it within seconds.",
				string(sandbox.PersistRetry)),
			"retry_for":     durationAttribute(fmt.Sprintf("How long `retry` keeps the frozen sandbox. `1s` to `%s`.", duration.New(sandbox.MaxRetryFor).ValueString()), sandbox.DefaultRetryFor),
			"size_limit_mb": limit(fmt.Sprintf("Largest state that is saved, unpacked, in MiB, 1 to %d.", sandbox.MaxStateLimitMB), sandbox.DefaultStateLimitMB),
		},
	}
}

// contentAttributes say what sandboxes find under /data.
func contentAttributes() map[string]schema.Attribute {
	bound := fmt.Sprintf("`initial_state` and `skills` hold at most %d bytes together. Changed in place, for generations that follow. Default: none.", sandbox.MaxSeedBytes)
	return map[string]schema.Attribute{
		"initial_state": schema.MapAttribute{
			MarkdownDescription: "Text files, by path relative to `/data` such as `character.json`, with which a sandbox begins that has no saved state. " + bound,
			Optional:            true,
			ElementType:         types.StringType,
		},
		"skills": schema.MapAttribute{
			MarkdownDescription: "Prompts by skill, written to `/data/skills/<skill>/prompt.md` at the beginning of each generation. A name is 1 to 63 characters of `a-z`, `0-9`, `_` and `-`. " + bound,
			Optional:            true,
			ElementType:         types.StringType,
		},
	}
}

func (s *State) expand() *sandbox.StateSpec {
	if s == nil {
		return nil
	}
	return &sandbox.StateSpec{
		Scope: sandbox.StateScope(s.Scope.ValueString()), CheckpointEvery: s.CheckpointEvery.Pointer(),
		OnPersistFailure: sandbox.PersistFailure(s.OnPersistFailure.ValueString()), RetryFor: orZero(s.RetryFor), SizeLimitMB: s.SizeLimitMB.ValueInt64(),
	}
}

// flattenState keeps the model's block when it says what the environment has.
func (m *Model) flattenState(ctx context.Context, spec sandbox.EnvironmentSpec, diags *diag.Diagnostics) {
	m.InitialState = flattenMap(ctx, spec.InitialState, m.InitialState, diags)
	m.Skills = flattenMap(ctx, spec.Skills, m.Skills, diags)
	now := sandbox.EnvironmentSpec{State: m.State.expand()}.WithDefaults()
	if reflect.DeepEqual(now.State, spec.State) {
		return
	}
	m.State = nil
	if s := spec.State; s != nil {
		m.State = &State{
			Scope: types.StringValue(string(s.Scope)), CheckpointEvery: duration.FromPointer(s.CheckpointEvery),
			OnPersistFailure: types.StringValue(string(s.OnPersistFailure)), RetryFor: duration.New(s.RetryFor), SizeLimitMB: types.Int64Value(s.SizeLimitMB),
		}
	}
}

// choice is a word whose allowed values the domain checks.
func choice(description, def string) schema.StringAttribute {
	return schema.StringAttribute{
		MarkdownDescription: description + " Default: `" + def + "`.",
		Optional:            true,
		Computed:            true,
		Default:             stringdefault.StaticString(def),
	}
}
