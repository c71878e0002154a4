package environment

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Mount is a mount block.
type Mount struct {
	Source   types.String `tfsdk:"source"`
	Target   types.String `tfsdk:"target"`
	Writable types.Bool   `tfsdk:"writable"`
}

// Copy is a copy block.
type Copy struct {
	Source types.String `tfsdk:"source"`
	Target types.String `tfsdk:"target"`
}

const allowedPaths = "The reconciler must have been started with `--mount-allow` for it; without a reconciler nothing is allowed. "

func mountBlock() schema.ListNestedBlock {
	return schema.ListNestedBlock{
		MarkdownDescription: "A directory of the host in every sandbox; there may be 16. " + allowedPaths + "Changed in place; sandboxes that already run keep theirs.",
		NestedObject: schema.NestedBlockObject{Attributes: map[string]schema.Attribute{
			"source": hostPath("Absolute path of the directory on the service's machine, which must be the engine's."),
			"target": hostPath("Absolute path in the sandbox, outside of what the system has there (`/data`, `/etc`, `/tmp`, …) and of every other mount."),
			"writable": schema.BoolAttribute{
				MarkdownDescription: "Let sandboxes write to the directory. Default: `false`.",
				Optional:            true,
				Computed:            true,
				Default:             booldefault.StaticBool(false),
			},
		}},
	}
}

func copyBlock() schema.ListNestedBlock {
	return schema.ListNestedBlock{
		MarkdownDescription: "A file or directory of the host that is copied into each sandbox when it is made; there may be 16. " + allowedPaths + "Changed in place; sandboxes that already run keep theirs.",
		NestedObject: schema.NestedBlockObject{Attributes: map[string]schema.Attribute{
			"source": hostPath("Absolute path on the service's machine."),
			"target": hostPath("Path of the file, or of the directory, under `/workspace` or `/data`."),
		}},
	}
}

func hostPath(description string) schema.StringAttribute {
	return schema.StringAttribute{MarkdownDescription: description, Required: true}
}

// expandMounts stands in a valid path for each that is unknown.
func expandMounts(ctx context.Context, list types.List, diags *diag.Diagnostics) (mounts []sandbox.Mount) {
	for i, b := range expandBlocks[Mount](ctx, list, diags) {
		mounts = append(mounts, sandbox.Mount{
			Source: orAssumed(b.Source, "/unknown"), Target: orAssumed(b.Target, fmt.Sprintf("/unknown-%d", i)), Writable: b.Writable.ValueBool(),
		})
	}
	return mounts
}

// expandCopies stands in a valid path for each that is unknown.
func expandCopies(ctx context.Context, list types.List, diags *diag.Diagnostics) (copies []sandbox.Copy) {
	for _, b := range expandBlocks[Copy](ctx, list, diags) {
		copies = append(copies, sandbox.Copy{Source: orAssumed(b.Source, "/unknown"), Target: orAssumed(b.Target, "/workspace/unknown")})
	}
	return copies
}

// flattenHostPaths keeps the model's blocks when they say what the environment has.
func (m *Model) flattenHostPaths(ctx context.Context, a sandbox.HostAccess, diags *diag.Diagnostics) {
	if !slices.Equal(expandMounts(ctx, m.Mounts, diags), a.Mounts) {
		var list []Mount
		for _, b := range a.Mounts {
			list = append(list, Mount{types.StringValue(b.Source), types.StringValue(b.Target), types.BoolValue(b.Writable)})
		}
		m.Mounts = blocksOf(ctx, mountBlock(), list, diags)
	}
	if !slices.Equal(expandCopies(ctx, m.Copies, diags), a.Copies) {
		var list []Copy
		for _, b := range a.Copies {
			list = append(list, Copy{types.StringValue(b.Source), types.StringValue(b.Target)})
		}
		m.Copies = blocksOf(ctx, copyBlock(), list, diags)
	}
}

// planMounts warns of writable mounts when the plan adds them: the sandboxes' own users may not write where they lie.
func (m *Model) planMounts(ctx context.Context, state *Model) (diags diag.Diagnostics) {
	if m.Confinement != nil && !m.Confinement.User.IsNull() {
		return nil
	}
	writable := func(m *Model) (sources []string) {
		for _, b := range expandBlocks[Mount](ctx, m.Mounts, &diags) {
			if b.Writable.ValueBool() {
				sources = append(sources, orAssumed(b.Source, "one that is known after apply"))
			}
		}
		return sources
	}
	sources := writable(m)
	if sources == nil || state != nil && (state.Confinement == nil || state.Confinement.User.IsNull()) && slices.Equal(sources, writable(state)) {
		return diags
	}
	diags.AddAttributeWarning(path.Root("mount"), fmt.Sprintf("Writable Mounts Of Environment %s Keep Their Owners", orAssumed(m.Name, "whose name is known after apply")), fmt.Sprintf(
		"Each sandbox has a user of its own. It can write to %s only where every user may, and what it makes there belongs to that user. "+
			"Set confinement.user to the numeric owner of the directory, as in \"1000:1000\"; sandboxes with the same user share the kernel's limits for it.",
		strings.Join(sources, ", ")))
	return diags
}
