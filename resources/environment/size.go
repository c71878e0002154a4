package environment

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/objectvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/float64default"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/int64default"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Size is the resources attribute.
type Size struct {
	MemoryMB types.Int64   `tfsdk:"memory_mb"`
	CPUs     types.Float64 `tfsdk:"cpus"`
	PIDs     types.Int64   `tfsdk:"pids_limit"`
	DiskMB   types.Int64   `tfsdk:"disk_mb"`
}

func instanceTypeAttribute() schema.StringAttribute {
	return schema.StringAttribute{
		MarkdownDescription: "Size of a sandbox by name: " + instanceTypes() +
			". Conflicts with `resources`. Changed in place; running sandboxes keep theirs. Default: the defaults of " +
			"`resources`, and on Cloudflare `basic`.",
		Optional:   true,
		Validators: []validator.String{stringvalidator.OneOf(instanceTypeNames()...)},
	}
}

func sizeAttribute() schema.SingleNestedAttribute {
	former := sandbox.FormerDefaultResources
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "Size of a sandbox in numbers. Conflicts with `instance_type`. Changed in place; running " +
			"sandboxes keep theirs. Default: the attributes' defaults, on Cloudflare `basic`. An environment on Docker " +
			"that has the former default of 4096 MiB or 2 cores keeps it while the configuration names no other.",
		Validators: []validator.Object{objectvalidator.ConflictsWith(path.MatchRoot("instance_type"))},
		Attributes: map[string]schema.Attribute{
			"memory_mb": limit(fmt.Sprintf("Memory limit in MiB, %d to %d.", sandbox.MinMemoryMB, sandbox.MaxMemoryMB),
				sandbox.DefaultResources.MemoryMB, keepFormer{former.MemoryMB}),
			"pids_limit": limit("Limit of processes and threads, 32 to 4096.", sandbox.DefaultResources.PIDs),
			"disk_mb": limit("Disk size in MB, 1024 to 102400, which is billed. On Docker, programs are killed when "+
				"`/workspace` and `/data` together exceed it.", sandbox.DefaultResources.DiskMB),
			"cpus": schema.Float64Attribute{
				MarkdownDescription: fmt.Sprintf("CPU limit in cores, %g to %g, in steps of 0.001. Default: `%g`.",
					cores(sandbox.MinCPUMillis), cores(sandbox.MaxCPUMillis), cores(sandbox.DefaultResources.CPUMillis)),
				Optional:      true,
				Computed:      true,
				Default:       float64default.StaticFloat64(cores(sandbox.DefaultResources.CPUMillis)),
				PlanModifiers: []planmodifier.Float64{keepFormer{former.CPUMillis}},
			},
		},
	}
}

func limit(description string, def int64, modifiers ...planmodifier.Int64) schema.Int64Attribute {
	return schema.Int64Attribute{
		MarkdownDescription: description + " Default: `" + types.Int64Value(def).String() + "`.",
		Optional:            true,
		Computed:            true,
		Default:             int64default.StaticInt64(def),
		PlanModifiers:       modifiers,
	}
}

// keepFormer plans the former default if the state has it and the configuration sets nothing, so that a new default
// changes no existing environment.
type keepFormer struct{ former int64 }

func (keepFormer) Description(context.Context) string { return "The former default is kept." }

func (k keepFormer) MarkdownDescription(ctx context.Context) string { return k.Description(ctx) }

func (k keepFormer) PlanModifyInt64(_ context.Context, req planmodifier.Int64Request,
	resp *planmodifier.Int64Response) {
	if req.ConfigValue.IsNull() && req.StateValue.ValueInt64() == k.former {
		resp.PlanValue = req.StateValue
	}
}

// PlanModifyFloat64 compares in thousandths.
func (k keepFormer) PlanModifyFloat64(_ context.Context, req planmodifier.Float64Request,
	resp *planmodifier.Float64Response) {
	if req.ConfigValue.IsNull() && millis(req.StateValue.ValueFloat64()) == k.former {
		resp.PlanValue = req.StateValue
	}
}

// namesSize reports whether the model gives a size, by name or by figures.
func (m *Model) namesSize() bool { return m.Resources != nil || !m.InstanceType.IsNull() }

// memoryKnown reports whether the memory is known, or is a default.
func (m *Model) memoryKnown() bool {
	return !m.InstanceType.IsUnknown() && (m.Resources == nil || !m.Resources.MemoryMB.IsUnknown())
}

// sizeKnown reports whether the parts of the size that have a price are known.
func (m *Model) sizeKnown() bool {
	s := m.Resources
	return !m.InstanceType.IsUnknown() &&
		(s == nil || !(s.MemoryMB.IsUnknown() || s.CPUs.IsUnknown() || s.DiskMB.IsUnknown()))
}

// expandResources returns the model's size. What the model omits is zero.
func expandResources(m Model) sandbox.Resources {
	if r, ok := sandbox.ResourcesOf(m.InstanceType.ValueString()); ok {
		return r
	}
	if m.Resources == nil {
		return sandbox.Resources{}
	}
	return sandbox.Resources{
		MemoryMB:  m.Resources.MemoryMB.ValueInt64(),
		CPUMillis: millis(m.Resources.CPUs.ValueFloat64()),
		PIDs:      m.Resources.PIDs.ValueInt64(),
		DiskMB:    m.Resources.DiskMB.ValueInt64(),
	}
}

// changedResources returns the size to set in a change. If the configuration no longer names a size, it returns the
// default, even if the environment has kept a former default.
func changedResources(plan, state Model) sandbox.Resources {
	if plan.namesSize() || !state.namesSize() {
		return expandResources(plan)
	}
	return sandbox.EnvironmentSpec{Backend: sandbox.Backend(plan.Backend.ValueString())}.WithDefaults().Resources
}

// flattenResources keeps the way in which the model gives the size (by name, by numbers or not at all) while it still
// gives this size. Otherwise it uses an instance type if one has this size, nothing if this is the default, and numbers
// if neither applies.
func (m *Model) flattenResources(spec sandbox.EnvironmentSpec) {
	r := spec.Resources
	unnamed := sandbox.EnvironmentSpec{Backend: spec.Backend}
	current := unnamed
	current.Resources = expandResources(*m)
	if !m.namesSize() {
		current = current.Keeping(spec)
	}
	if current.WithDefaults().Resources == r {
		return
	}
	m.InstanceType, m.Resources = types.StringNull(), nil
	for _, t := range sandbox.InstanceTypes {
		if t.Resources == r {
			m.InstanceType = types.StringValue(t.Name)
			return
		}
	}
	if r != unnamed.WithDefaults().Resources {
		m.Resources = &Size{
			MemoryMB: types.Int64Value(r.MemoryMB),
			CPUs:     value.Cores(r.CPUMillis),
			PIDs:     types.Int64Value(r.PIDs),
			DiskMB:   types.Int64Value(r.DiskMB),
		}
	}
}

func cores(millis int64) float64 { return float64(millis) / 1000 }

func millis(cores float64) int64 { return int64(math.Round(cores * 1000)) }

func instanceTypeNames() []string {
	var names []string
	for _, t := range sandbox.InstanceTypes {
		names = append(names, t.Name)
	}
	return names
}

func instanceTypes() string {
	var list []string
	for _, t := range sandbox.InstanceTypes {
		list = append(list,
			fmt.Sprintf("`%s` (%d MiB, %g CPU, %d MB disk)", t.Name, t.MemoryMB, cores(t.CPUMillis), t.DiskMB))
	}
	return strings.Join(list, ", ")
}
