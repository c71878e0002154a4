package containerimage

import (
	"context"
	"maps"
	"path/filepath"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/devcontainer"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/given"
)

func devcontainerAttribute() schema.StringAttribute {
	beside := path.MatchRelative().AtParent()
	return schema.StringAttribute{
		MarkdownDescription: "Path of a `devcontainer.json` in the context, such as `.devcontainer/devcontainer.json`, " +
			"that says how to build the image, instead of `dockerfile`: `image` or `build`, `features` of a registry or of " +
			"the project, `containerEnv` and `remoteEnv`. Its build context is the one that the file names; `args` here " +
			"override those of the file. `post_start` has its commands. The plan warns of settings that have no effect in " +
			"a sandbox, such as `privileged`. Changed in place. Default: none.",
		Optional: true,
		Validators: []validator.String{
			given.Text{},
			stringvalidator.ConflictsWith(beside.AtName("dockerfile"), beside.AtName("dockerfile_inline"),
				beside.AtName("target")),
		},
	}
}

// postStartType is the type of an element of post_start.
var postStartType = types.ObjectType{AttrTypes: map[string]attr.Type{
	"command": types.ListType{ElemType: types.StringType},
}}

func postStartAttribute() schema.ListNestedAttribute {
	return schema.ListNestedAttribute{
		MarkdownDescription: "Commands of the `devcontainer.json` and its features, for `post_start` of a " +
			"`sandbox_environment`: `onCreateCommand`, `updateContentCommand`, `postCreateCommand` and `postStartCommand`. " +
			"Known at plan. Null without `devcontainer`.",
		Computed: true,
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"command": schema.ListAttribute{
				MarkdownDescription: "Program and arguments.",
				Computed:            true,
				ElementType:         types.StringType,
			},
		}},
	}
}

// devcontainer reads the devcontainer.json of a build. Everything must be known.
func (b *Build) devcontainer(ctx context.Context, c *registry.Client) (devcontainer.Build, error) {
	file := filepath.Join(b.Context.ValueString(), filepath.FromSlash(b.Devcontainer.ValueString()))
	return devcontainer.Read(ctx, file, func(ctx context.Context, ref string) ([]byte, error) {
		return c.Artifact(ctx, ref, devcontainer.MaxFeatureBytes)
	})
}

// follow changes the spec to what a devcontainer.json says.
func follow(spec *image.Spec, d devcontainer.Build) {
	spec.Context, spec.Inline, spec.FilesDir = d.Context, d.Dockerfile, devcontainer.FilesDir
	args := maps.Clone(d.Args)
	if args == nil {
		args = make(map[string]string)
	}
	maps.Copy(args, spec.Args)
	spec.Args = args
	if len(spec.CacheFrom) == 0 {
		spec.CacheFrom = d.CacheFrom
	}
	for _, f := range d.Files {
		spec.Files = append(spec.Files, image.File(f))
	}
}

// PostStart is an element of post_start.
type PostStart struct {
	Command []string `tfsdk:"command"`
}

// postStart is the value of post_start.
func postStart(ctx context.Context, d devcontainer.Build) (types.List, diag.Diagnostics) {
	commands := make([]PostStart, len(d.PostStart))
	for i, command := range d.PostStart {
		commands[i] = PostStart{command}
	}
	return types.ListValueFrom(ctx, postStartType, commands)
}

// withoutEffect returns one warning for all settings that have no effect.
func withoutEffect(d devcontainer.Build) diag.Diagnostics {
	if len(d.Notes) == 0 {
		return nil
	}
	lines := make([]string, len(d.Notes))
	for i, n := range d.Notes {
		lines[i] = "- " + n.String()
	}
	return diag.Diagnostics{diag.NewAttributeWarningDiagnostic(path.Root("build").AtName("devcontainer"),
		"Devcontainer Settings Without Effect",
		"The image is built, but sandboxes do not follow all of its devcontainer.json:\n\n"+strings.Join(lines, "\n"))}
}
