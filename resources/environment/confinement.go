package environment

import (
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Confinement is the confinement block.
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

func confinementBlock() schema.Block {
	def := sandbox.Confinement{}.WithDefaults()
	return schema.SingleNestedBlock{
		MarkdownDescription: "How sandboxes are shut in, beyond what every sandbox is: without capabilities and new privileges, on a read-only root. Changed in place; sandboxes that already run keep theirs.",
		Attributes: map[string]schema.Attribute{
			"user": schema.StringAttribute{
				MarkdownDescription: "Numeric user and group that the code of every sandbox runs as, as `uid:gid` up to 65535, or `uid` for both. Sandboxes with the same user share the kernel's limits for it, such as inotify instances, with each other and with programs of the host that have it. Default: a user of its own for each sandbox, which cannot write to a `mount` that belongs to another user.",
				Optional:            true,
			},
			"allow_root": schema.BoolAttribute{
				MarkdownDescription: "Permit `user` to name user or group 0, which is refused otherwise. Default: `false`.",
				Optional:            true,
				Computed:            true,
				Default:             booldefault.StaticBool(false),
			},
			"runtime": schema.StringAttribute{
				MarkdownDescription: "Container runtime, such as `runsc`, that the engine must have; without it the apply fails. Default: the engine's own.",
				Optional:            true,
			},
			"seccomp_profile": schema.StringAttribute{
				MarkdownDescription: "Seccomp profile as its JSON text, such as `file(\"seccomp.json\")`, at most 128 KiB, in place of the provider's own. It must deny what it does not name. Default: the provider's own, which allows less than the engine's default.",
				Optional:            true,
			},
			"tmp_mb":     limit("Size of `/tmp` in MiB, 1 to 32768, but at most half of the memory, against which it counts.", def.TmpMB),
			"run_mb":     limit("Size of `/run` in MiB, 1 to 1024, but at most a sixteenth of the memory, against which it counts.", def.RunMB),
			"open_files": limit("Open files of one process, 64 to 1048576.", def.OpenFiles),
			"disk_limit": choice("`billed`: programs that keep more than `disk_mb` in `/workspace` and `/data` together are ended. "+
				"`enforced`: a quota bounds each of the two to `disk_mb` as well, and the apply fails on an engine that cannot hold that.", string(def.DiskLimit)),
		},
	}
}

func (c *Confinement) expand() sandbox.Confinement {
	if c == nil {
		return sandbox.Confinement{}
	}
	return sandbox.Confinement{
		User:      c.User.ValueString(),
		AllowRoot: c.AllowRoot.ValueBool() || c.AllowRoot.IsUnknown(), // what is unknown may be valid
		Runtime:   c.Runtime.ValueString(), SeccompProfile: c.SeccompProfile.ValueString(),
		TmpMB: c.TmpMB.ValueInt64(), RunMB: c.RunMB.ValueInt64(), OpenFiles: c.OpenFiles.ValueInt64(),
		DiskLimit: sandbox.DiskLimit(c.DiskLimit.ValueString()),
	}
}

// flattenConfinement keeps the model's block when it says what the environment has.
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
