package environment

import (
	"reflect"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/duration"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// WarmPool is the warm_pool attribute.
type WarmPool struct {
	Size    types.Int64    `tfsdk:"size"`
	MaxSize types.Int64    `tfsdk:"max_size"`
	Mode    types.String   `tfsdk:"mode"`
	TTL     duration.Value `tfsdk:"ttl"`
	Paused  types.Bool     `tfsdk:"paused"`
}

func poolAttribute() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "Ready sandboxes, so that an acquire only claims one. A running reconciler creates and " +
			"replaces them. They are billed to the environment. Changed in place: waiting sandboxes with old settings are " +
			"replaced. Default: no pool.",
		Attributes: map[string]schema.Attribute{
			"size": schema.Int64Attribute{
				MarkdownDescription: "Number of ready sandboxes, 0 to 100.",
				Required:            true,
			},
			"max_size": schema.Int64Attribute{
				MarkdownDescription: "Largest size of the pool, at most 100. It grows to the largest number of leases that " +
					"began within 10 s in the last 10 minutes, and shrinks to `size` again. Default: it does not grow.",
				Optional:   true,
				Validators: []validator.Int64{int64validator.AtLeast(1)},
			},
			"mode": schema.StringAttribute{
				MarkdownDescription: "How sandboxes wait. `paused`: asleep, by `sleep_mode`; they run no code, cost what a " +
					"sleeping sandbox costs, and an acquire wakes one. `running`: awake; they cost what an awake sandbox costs, " +
					"and an acquire wakes none. Default: `paused`, the cheapest.",
				Optional: true,
				Computed: true,
				Default:  stringdefault.StaticString(string(sandbox.PoolPaused)),
			},
			"ttl": durationAttribute("Age at which a waiting sandbox is replaced. `1m` to `8760h`.",
				sandbox.DefaultPoolTTL),
			"paused": schema.BoolAttribute{
				MarkdownDescription: "Create no new ones; an acquire still takes those that wait. Default: `false`.",
				Optional:            true,
				Computed:            true,
				Default:             booldefault.StaticBool(false),
			},
		},
	}
}

// expand returns nil while all of it is unknown. An unknown size is 0, so that the rest is checked.
func (p *WarmPool) expand() *sandbox.WarmPool {
	if p == nil || p.Size.IsUnknown() && p.MaxSize.IsUnknown() && p.Mode.IsUnknown() && p.TTL.IsUnknown() &&
		p.Paused.IsUnknown() {
		return nil
	}
	return &sandbox.WarmPool{
		Size: p.Size.ValueInt64(), MaxSize: p.MaxSize.ValueInt64(), Mode: sandbox.PoolMode(p.Mode.ValueString()),
		TTL: orZero(p.TTL), Paused: p.Paused.ValueBool(),
	}
}

// flattenPool keeps the model's object if it matches the environment.
func (m *Model) flattenPool(spec sandbox.EnvironmentSpec) {
	now := sandbox.EnvironmentSpec{WarmPool: m.WarmPool.expand()}.WithDefaults()
	spec.WarmPool = spec.WithDefaults().WarmPool // an earlier release had no mode
	if reflect.DeepEqual(now.WarmPool, spec.WarmPool) {
		return
	}
	m.WarmPool = nil
	if p := spec.WarmPool; p != nil {
		m.WarmPool = &WarmPool{
			Size:   types.Int64Value(p.Size),
			Mode:   types.StringValue(string(p.Mode)),
			TTL:    duration.New(p.TTL),
			Paused: types.BoolValue(p.Paused),
		}
		if p.MaxSize != 0 {
			m.WarmPool.MaxSize = types.Int64Value(p.MaxSize)
		}
	}
}
