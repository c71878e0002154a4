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
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/collection"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/given"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Mount is an element of mount.
type Mount struct {
	Source   types.String `tfsdk:"source"`
	Target   types.String `tfsdk:"target"`
	Writable types.Bool   `tfsdk:"writable"`
}

// Copy is an element of copy.
type Copy struct {
	Source types.String `tfsdk:"source"`
	Target types.String `tfsdk:"target"`
}

const allowedPaths = "Needs a reconciler that was started with `--mount-allow` for the path. "

func mountAttribute() schema.ListNestedAttribute {
	return schema.ListNestedAttribute{
		Optional:   true,
		Validators: []validator.List{given.NoNulls{}},
		MarkdownDescription: "Host directories in every sandbox, at most 16. " + allowedPaths +
			"Changed in place; running sandboxes keep theirs. Default: none.",
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"source": hostPath("Absolute path on the reconciler's machine, which must be the engine's."),
			"target": hostPath("Absolute path in the sandbox, outside system directories (`/data`, `/etc`, `/tmp`, …) and " +
				"other mounts."),
			"writable": schema.BoolAttribute{
				MarkdownDescription: "Let sandboxes write to the directory. Default: `false`.",
				Optional:            true,
				Computed:            true,
				Default:             booldefault.StaticBool(false),
			},
		}},
	}
}

func copyAttribute() schema.ListNestedAttribute {
	return schema.ListNestedAttribute{
		Optional:   true,
		Validators: []validator.List{given.NoNulls{}},
		MarkdownDescription: "Host files or directories that are copied into each new sandbox, at most 16. " +
			allowedPaths + "Changed in place; running sandboxes keep theirs. Default: none.",
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"source": hostPath("Absolute path on the reconciler's machine."),
			"target": hostPath("Path of the copy, under `/workspace` or `/data`."),
		}},
	}
}

func hostPath(description string) schema.StringAttribute {
	return schema.StringAttribute{MarkdownDescription: description, Required: true}
}

// expandMounts replaces each unknown path with a valid one.
func expandMounts(ctx context.Context, list types.List, diags *diag.Diagnostics) (mounts []sandbox.Mount) {
	for i, b := range collection.Elements[Mount](ctx, list, diags) {
		mounts = append(mounts, sandbox.Mount{
			Source:   orAssumed(b.Source, "/unknown"),
			Target:   orAssumed(b.Target, fmt.Sprintf("/unknown-%d", i)),
			Writable: b.Writable.ValueBool(),
		})
	}
	return mounts
}

// expandCopies replaces each unknown path with a valid one.
func expandCopies(ctx context.Context, list types.List, diags *diag.Diagnostics) (copies []sandbox.Copy) {
	for _, b := range collection.Elements[Copy](ctx, list, diags) {
		copies = append(copies,
			sandbox.Copy{Source: orAssumed(b.Source, "/unknown"), Target: orAssumed(b.Target, "/workspace/unknown")})
	}
	return copies
}

// flattenHostPaths keeps the model's lists if they match the environment.
func (m *Model) flattenHostPaths(ctx context.Context, a sandbox.HostAccess, diags *diag.Diagnostics) {
	if !slices.Equal(expandMounts(ctx, m.Mounts, diags), a.Mounts) {
		var list []Mount
		for _, b := range a.Mounts {
			list = append(list, Mount{types.StringValue(b.Source), types.StringValue(b.Target), types.BoolValue(b.Writable)})
		}
		m.Mounts = collection.List(ctx, mountAttribute(), list, diags)
	}
	if !slices.Equal(expandCopies(ctx, m.Copies, diags), a.Copies) {
		var list []Copy
		for _, b := range a.Copies {
			list = append(list, Copy{types.StringValue(b.Source), types.StringValue(b.Target)})
		}
		m.Copies = collection.List(ctx, copyAttribute(), list, diags)
	}
}

// checkHostPaths refuses at plan time what a service in this process never allows.
func (r *Resource) checkHostPaths(ctx context.Context, m *Model) (diags diag.Diagnostics) {
	if r.Provider == nil || !r.Provider.Embedded {
		return nil
	}
	refuse := func(list string, i int, source types.String) {
		if source.IsUnknown() {
			return
		}
		at := path.Root(list).AtListIndex(i).AtName("source")
		diags.AddAttributeError(at, "Directory Of The Host Without A Reconciler", fmt.Sprintf(
			"%s %s lies in no directory that is allowed: without a reconciler, sandboxes have no access to host files. "+
				"Configure a reconciler that was started with --mount-allow for the path, or put the files into the image.",
			at, source))
	}
	for i, b := range collection.Elements[Mount](ctx, m.Mounts, &diags) {
		refuse("mount", i, b.Source)
	}
	for i, b := range collection.Elements[Copy](ctx, m.Copies, &diags) {
		refuse("copy", i, b.Source)
	}
	return diags
}

// planMounts warns when the plan adds writable mounts: the sandbox's own user may lack permission to write there.
func (m *Model) planMounts(ctx context.Context, state *Model) (diags diag.Diagnostics) {
	if m.Confinement != nil && !m.Confinement.User.IsNull() {
		return nil
	}
	writable := func(m *Model) (sources []string) {
		for _, b := range collection.Elements[Mount](ctx, m.Mounts, &diags) {
			if b.Writable.ValueBool() {
				sources = append(sources, orAssumed(b.Source, "one that is known after apply"))
			}
		}
		return sources
	}
	sources := writable(m)
	if sources == nil || state != nil && (state.Confinement == nil || state.Confinement.User.IsNull()) &&
		slices.Equal(sources, writable(state)) {
		return diags
	}
	diags.AddAttributeWarning(path.Root("mount"), fmt.Sprintf("Writable Mounts Of Environment %s Keep Their Owners",
		orAssumed(m.Name, "whose name is known after apply")), fmt.Sprintf("Each sandbox has a unique user. It can write "+
		"to %s only where every user may, and its files there belong to that user. Set confinement.user to the numeric "+
		"owner of the directory, as in \"1000:1000\"; sandboxes with the same user share the kernel's per-user limits.",
		strings.Join(sources, ", ")))
	return diags
}
