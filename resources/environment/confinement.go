package environment

import (
	"context"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/given"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Confinement is the confinement attribute.
type Confinement struct {
	User           types.String `tfsdk:"user"`
	AllowRoot      types.Bool   `tfsdk:"allow_root"`
	Runtime        types.String `tfsdk:"runtime"`
	SeccompProfile types.String `tfsdk:"seccomp_profile"`
	TmpMB          types.Int64  `tfsdk:"tmp_mb"`
	RunMB          types.Int64  `tfsdk:"run_mb"`
	OpenFiles      types.Int64  `tfsdk:"open_files"`
	DiskLimit      types.String `tfsdk:"disk_limit"`
}

func confinementAttribute() schema.SingleNestedAttribute {
	def := sandbox.Confinement{}.WithDefaults()
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "Confinement of the sandboxes. Every sandbox has a read-only root, no capabilities and no " +
			"new privileges. Changed in place; running sandboxes keep theirs. Default: the attributes' defaults.",
		Attributes: map[string]schema.Attribute{
			"user": schema.StringAttribute{
				MarkdownDescription: "Numeric user and group of the sandboxes' code, `uid:gid` up to 65535, or `uid` for both. " +
					"Sandboxes with the same user share the kernel's per-user limits, such as inotify instances, also with host " +
					"programs of that user. Default: a unique user for each sandbox, which cannot write to a `mount` of another " +
					"user.",
				Optional:   true,
				Validators: []validator.String{given.Text{}},
			},
			"allow_root": schema.BoolAttribute{
				MarkdownDescription: "Allow user or group 0 in `user`. Default: `false`.",
				Optional:            true,
				Computed:            true,
				Default:             booldefault.StaticBool(false),
			},
			"runtime": schema.StringAttribute{
				MarkdownDescription: "Container runtime, such as `runsc`. If the engine does not have it, the apply fails. " +
					"Default: the engine's.",
				Optional:   true,
				Validators: []validator.String{given.Text{}},
			},
			"seccomp_profile": schema.StringAttribute{
				MarkdownDescription: "Seccomp profile as JSON, such as `file(\"seccomp.json\")`, at most 128 KiB. It must deny " +
					"by default. Default: the provider's, which allows less than the engine's default.",
				Optional:   true,
				Validators: []validator.String{given.Text{}},
			},
			"tmp_mb": part("Size of `/tmp` in MiB, 1 to 32768, at most half of the memory, which it counts towards.",
				def.TmpMB, "half"),
			"run_mb": part(
				"Size of `/run` in MiB, 1 to 1024, at most a sixteenth of the memory, which it counts towards.", def.RunMB,
				"a sixteenth"),
			"open_files": limit("Limit of open files per process, 64 to 1048576.", def.OpenFiles),
			"disk_limit": choice("How `disk_mb` is enforced. `billed`: programs are killed when `/workspace` and `/data` "+
				"together exceed it. `enforced`: in addition, a quota limits each of the two to it; the apply fails on an "+
				"engine without quotas.", string(def.DiskLimit)),
		},
	}
}

// part describes a size whose default is limited to a part of the memory.
func part(description string, def int64, of string) schema.Int64Attribute {
	a := limit(description, def)
	a.MarkdownDescription = strings.TrimSuffix(a.MarkdownDescription, ".") + ", or " + of +
		" of the memory if that is less."
	return a
}

// planDirectories refuses sizes of /tmp and /run above their part of the memory, which only the plan knows if the
// configuration does not name it.
func (r *Resource) planDirectories(ctx context.Context, m, state *Model) (diags diag.Diagnostics) {
	if !m.memoryKnown() || m.Backend.ValueString() != string(sandbox.Docker) {
		return nil
	}
	planned := m.Confinement.expand()
	spec := sandbox.EnvironmentSpec{Backend: sandbox.Docker, Resources: expandResources(*m)}
	above := planned.AboveMemory(spec.WithDefaults().Resources)
	if len(above) > 0 && r.Provider != nil && state != nil && !m.namesSize() && !state.namesSize() &&
		m.Name.Equal(state.Name) {
		kept, err := r.stored(ctx, state)
		if err != nil {
			return diagnose.Failed("Reading Environment Failed", err, nil)
		}
		above = planned.AboveMemory(spec.Keeping(kept).WithDefaults().Resources)
	}
	if err := sandbox.InvalidFields("environment", above); err != nil {
		diags.Append(diagnose.Failed("Invalid Environment", err, place)...)
	}
	return diags
}

// ofAnyMemory makes valid sizes of /tmp and /run valid for every memory, as the defaults are.
func ofAnyMemory(c sandbox.Confinement) sandbox.Confinement {
	def := sandbox.Confinement{}.WithDefaults()
	for _, f := range c.AboveMemory(sandbox.Resources{MemoryMB: sandbox.MinMemoryMB}) {
		switch f.Name {
		case "confinement.tmp_mb":
			c.TmpMB = def.TmpMB
		case "confinement.run_mb":
			c.RunMB = def.RunMB
		}
	}
	return c
}

func (c *Confinement) expand() sandbox.Confinement {
	if c == nil {
		return sandbox.Confinement{}
	}
	return sandbox.Confinement{
		User:      c.User.ValueString(),
		AllowRoot: c.AllowRoot.ValueBool() || c.AllowRoot.IsUnknown() && c.User.ValueString() != "", // it may allow the user
		Runtime:   c.Runtime.ValueString(), SeccompProfile: c.SeccompProfile.ValueString(),
		TmpMB: c.TmpMB.ValueInt64(), RunMB: c.RunMB.ValueInt64(), OpenFiles: c.OpenFiles.ValueInt64(),
		DiskLimit: sandbox.DiskLimit(c.DiskLimit.ValueString()),
	}
}

// flattenConfinement keeps the model's object if it matches the environment.
func (m *Model) flattenConfinement(is sandbox.Confinement) {
	if m.Confinement.expand().WithDefaults() == is {
		return
	}
	m.Confinement = nil
	if is == (sandbox.Confinement{}).WithDefaults() {
		return
	}
	m.Confinement = &Confinement{
		User: value.String(is.User), AllowRoot: types.BoolValue(is.AllowRoot),
		Runtime: value.String(is.Runtime), SeccompProfile: value.String(is.SeccompProfile),
		TmpMB: types.Int64Value(is.TmpMB), RunMB: types.Int64Value(is.RunMB), OpenFiles: types.Int64Value(is.OpenFiles),
		DiskLimit: types.StringValue(string(is.DiskLimit)),
	}
}
