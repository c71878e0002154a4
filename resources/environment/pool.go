package environment

import (
	"reflect"

	"github.com/hashicorp/terraform-plugin-framework-validators/objectvalidator"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/duration"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// WarmPool is the warm_pool block.
type WarmPool struct {
	Size    types.Int64    `tfsdk:"size"`
	MaxSize types.Int64    `tfsdk:"max_size"`
	Mode    types.String   `tfsdk:"mode"`
	TTL     duration.Value `tfsdk:"ttl"`
	Paused  types.Bool     `tfsdk:"paused"`
}

func poolBlock() schema.Block {
	return schema.SingleNestedBlock{
		MarkdownDescription: "Sandboxes that wait, so that an acquire has only to claim one. They are made and replaced by a running reconciler, and cost the environment what a sandbox costs. " +
			"Changed in place: what waits with other settings is replaced. Default: none wait.",
		Validators: []validator.Object{objectvalidator.AlsoRequires(path.MatchRelative().AtName("size"))},
		Attributes: map[string]schema.Attribute{
			"size": schema.Int64Attribute{
				MarkdownDescription: "How many sandboxes wait, 0 to 100. Required in the block.",
				Optional:            true,
			},
			"max_size": schema.Int64Attribute{
				MarkdownDescription: "The pool grows up to this size, at most 100, to the most leases that began within 10 s of each other in the last 10 minutes, " +
					"and shrinks to `size` again. Default: it does not grow.",
				Optional: true,
			},
			"mode": schema.StringAttribute{
				MarkdownDescription: "How they wait. `paused`: asleep, by `sleep_mode`; they run no code and cost what sleeps, and an acquire wakes one. " +
					"`running`: awake; they cost what is awake, and an acquire wakes and starts nothing. Default: `paused`, so that waiting costs the least.",
				Optional: true,
				Computed: true,
				Default:  stringdefault.StaticString(string(sandbox.PoolPaused)),
			},
			"ttl": durationAttribute("A sandbox that has waited for this long is replaced by a fresh one. `1m` to `8760h`.", sandbox.DefaultPoolTTL),
			"paused": schema.BoolAttribute{
				MarkdownDescription: "Make no new ones; those that wait are still given out. Default: `false`.",
				Optional:            true,
				Computed:            true,
				Default:             booldefault.StaticBool(false),
			},
		},
	}
}

func (p *WarmPool) expand() *sandbox.WarmPool {
	if p == nil {
		return nil
	}
	return &sandbox.WarmPool{
		Size: p.Size.ValueInt64(), MaxSize: p.MaxSize.ValueInt64(), Mode: sandbox.PoolMode(p.Mode.ValueString()),
		TTL: orZero(p.TTL), Paused: p.Paused.ValueBool(),
	}
}

// flattenPool keeps the model's block when it says what the environment has.
func (m *Model) flattenPool(spec sandbox.EnvironmentSpec) {
	now := sandbox.EnvironmentSpec{WarmPool: m.WarmPool.expand()}.WithDefaults()
	spec.WarmPool = spec.WithDefaults().WarmPool // an earlier release knew no mode
	if reflect.DeepEqual(now.WarmPool, spec.WarmPool) {
		return
	}
	m.WarmPool = nil
	if p := spec.WarmPool; p != nil {
		m.WarmPool = &WarmPool{
			Size: types.Int64Value(p.Size), Mode: types.StringValue(string(p.Mode)), TTL: duration.New(p.TTL), Paused: types.BoolValue(p.Paused),
		}
		if p.MaxSize != 0 {
			m.WarmPool.MaxSize = types.Int64Value(p.MaxSize)
		}
	}
}
