package containerimage

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/objectvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/setdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/given"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/timeout"
)

// The values of on_destroy.
const (
	onDestroyKeep   = "keep"
	onDestroyUntag  = "untag"
	onDestroyDelete = "delete"
)

// Schema describes the resource.
func (r *Resource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	resp.Schema = schema.Schema{
		Version: 1,
		MarkdownDescription: "A container image for sandboxes. `build` builds it on the Docker engine from a local " +
			"directory, with a Dockerfile or as a `devcontainer.json` says; `source` takes it from a registry. `push` pushes " +
			"it to the registry of its name.\n\n" +
			"A changed file shows in the plan as a changed `context_hash`, and the apply builds the image again. The tags " +
			"move once the new image is built. Running sandboxes keep the old image.\n\n" +
			"The hash covers the Dockerfile, the build arguments, target, platform and labels, and the path, mode and " +
			"content of every file that `.dockerignore` does not exclude. It does not cover times, owners or base images: " +
			"pin base images by digest. Terraform's own files, `.terraform`, `*.tfstate` and `*.tfstate.*` in any directory, " +
			"are excluded as if `.dockerignore` began with them: a later line such as `!testdata/a.tfstate` includes one. " +
			"Exclude a saved plan in the context yourself.\n\n" +
			"The apply makes the image that was planned. If a file of the context changes between plan and apply, or the tag " +
			"of a `source` moves, nothing is made and the apply fails. Terraform then reports an inconsistent final plan for " +
			"`context_hash` or `digest`; for a later change of a file the provider reports the error. Plan again in all " +
			"cases. A `source` with a digest in its `reference` does not move.\n\n" +
			"BuildKit builds the image where the engine has it, otherwise the classic builder.",
		Attributes: attributes(),
		Blocks: map[string]schema.Block{
			"timeouts": timeout.Block(ctx, timeouts.Opts{
				Create: true, CreateDescription: "Time limit for build, pull and push. Default: `20m`.",
				Update: true, UpdateDescription: "Time limit for rebuild, pull and push. Default: `20m`.",
				Delete: true, DeleteDescription: "Time limit for removing the image. Default: `5m`.",
			}),
		},
	}
}

func attributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"build":         buildAttribute(),
		"source":        sourceAttribute(),
		"registry_auth": authAttribute(),
		"name": schema.StringAttribute{
			MarkdownDescription: "Name of the image without tag, such as `catan-player` or " +
				"`registry.example.com/games/catan-player`. **Changing it replaces the image.**",
			Required:      true,
			Validators:    []validator.String{check(image.CheckName)},
			PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
		},
		"tags": schema.SetAttribute{
			MarkdownDescription: "Tags of the image, at least one. Changed in place. Default: `[\"latest\"]`.",
			Optional:            true,
			Computed:            true,
			ElementType:         types.StringType,
			Default: setdefault.StaticValue(types.SetValueMust(types.StringType,
				[]attr.Value{types.StringValue("latest")})),
			Validators: []validator.Set{
				setvalidator.SizeAtLeast(1), given.NoNulls{}, setvalidator.ValueStringsAre(check(image.CheckTag)),
			},
		},
		"push": schema.BoolAttribute{
			MarkdownDescription: "Push every tag to the registry that `name` begins with. Other engines then get the image " +
				"with `docker pull`, or `image_pull` of an environment. Changed in place; `false` leaves what was pushed. " +
				"Default: `false`.",
			Optional: true,
			Computed: true,
			Default:  booldefault.StaticBool(false),
		},
		"on_destroy": schema.StringAttribute{
			MarkdownDescription: "What happens to the image when it is destroyed or superseded. `untag` removes this " +
				"resource's tags. The engine deletes an image with its last tag; a registry keeps it untagged. Tags that the " +
				"registry cannot remove stay, with a warning. `delete` deletes the image under every name, in the registry " +
				"too. `keep` changes nothing. The engine keeps an image that a container uses, with a warning. Changed in " +
				"place. Default: `untag`.",
			Optional:   true,
			Computed:   true,
			Default:    stringdefault.StaticString(onDestroyUntag),
			Validators: []validator.String{stringvalidator.OneOf(onDestroyKeep, onDestroyUntag, onDestroyDelete)},
		},
		"keep_tags": schema.Int64Attribute{
			MarkdownDescription: "Number of tags of `name` to keep in the registry, at least 1, newest first by the " +
				"creation time in the image. Every apply that creates or changes this resource removes the older ones. This " +
				"resource's tags count as the newest. An apply never removes this resource's image, an image that an " +
				"environment or lease of the ledger uses, or an image without a creation time. A tag that cannot be removed " +
				"stays, with a warning. Registries that cannot remove single tags, such as Docker's before version 3, remove " +
				"an old image with all its tags. Needs `push`. Changed in place. Default: no limit.",
			Optional:   true,
			Validators: []validator.Int64{int64validator.AtLeast(1)},
		},
		"id":       computed("The same as `name`."),
		"image_id": computed("Id of the image on the engine, `sha256:…`. Null if it was copied from registry to registry."),
		"digest": computed("Digest of the image in its registry, `sha256:…`. Known at plan for a `source`. Null for a " +
			"build or an imported image that is not pushed."),
		"reference": computed("Immutable reference of the image, for `image` of a `sandbox_environment`: the name with " +
			"the digest or, for an image that only the engine has, its id."),
		"context_hash": computed("Hash of everything that the image is built from. Known at plan. Null for a `source`."),
		"instance": computed("Id of the Docker engine that has the image. If another engine answers, the plan fails and " +
			"the state stays. Null if the image was copied from registry to registry."),
		"copies": schema.SetAttribute{
			MarkdownDescription: "Where the image is: `engine`, `registry` or both. A lost copy shows in the plan, and the " +
				"apply restores it from the other.",
			Computed:    true,
			ElementType: types.StringType,
		},
		"post_start": postStartAttribute(),
		"size": schema.Int64Attribute{
			MarkdownDescription: "Size in bytes: unpacked on the engine, or packed in the registry if the image was copied " +
				"from registry to registry.",
			Computed: true,
		},
		"layers": schema.ListAttribute{
			MarkdownDescription: "Digests of the unpacked layers, lowest first. For a `source` with several platforms, " +
				"those of linux/amd64.",
			Computed:    true,
			ElementType: types.StringType,
		},
	}
}

func computed(description string) schema.StringAttribute {
	return schema.StringAttribute{MarkdownDescription: description, Computed: true}
}

func buildAttribute() schema.Attribute {
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "How to build the image. Either `build` or `source` is required to create an image; an " +
			"imported image needs neither and stays as it is. Default: none.",
		Validators: []validator.Object{objectvalidator.ConflictsWith(path.MatchRoot("source"))},
		Attributes: map[string]schema.Attribute{
			"context": schema.StringAttribute{
				MarkdownDescription: "Directory that is sent to the engine, such as `\"${path.module}/player\"`. Files in " +
					"`.dockerignore`, and Terraform's own, are left out. Changed in place.",
				Required:   true,
				Validators: []validator.String{given.Text{}},
			},
			"dockerfile": schema.StringAttribute{
				MarkdownDescription: "Path of the Dockerfile in the context. Changed in place. Default: `" +
					image.DefaultDockerfile + "`.",
				Optional: true,
				Validators: []validator.String{
					given.Text{},
					stringvalidator.ConflictsWith(path.MatchRelative().AtParent().AtName("dockerfile_inline")),
				},
			},
			"devcontainer": devcontainerAttribute(),
			"dockerfile_inline": schema.StringAttribute{
				MarkdownDescription: "Text of a Dockerfile, instead of `dockerfile`. `COPY` does not see it. Changed in place. " +
					"Default: none.",
				Optional:   true,
				Validators: []validator.String{given.Text{}},
			},
			"args": schema.MapAttribute{
				MarkdownDescription: "Values of the Dockerfile's `ARG`s. Do not put secrets here: they stay visible in the " +
					"image history and in Terraform's state. Changed in place. Default: none.",
				Optional:    true,
				ElementType: types.StringType,
				Validators:  []validator.Map{given.NoNulls{}},
			},
			"target": schema.StringAttribute{
				MarkdownDescription: "Stage to build. Changed in place. Default: the last one.",
				Optional:            true,
				Validators:          []validator.String{given.Text{}},
			},
			"platform": schema.StringAttribute{
				MarkdownDescription: "Platform to build for, such as `linux/amd64`. Changed in place. Default: the engine's.",
				Optional:            true,
				Validators:          []validator.String{given.Text{}},
			},
			"labels": schema.MapAttribute{
				MarkdownDescription: "Labels of the image. Changed in place. Default: none but `" + image.ContextHashLabel + "`.",
				Optional:            true,
				ElementType:         types.StringType,
				Validators:          []validator.Map{given.NoNulls{}},
			},
			"no_cache": schema.BoolAttribute{
				MarkdownDescription: "Build without cache. Not part of the hash: changing it builds nothing by itself. Changed " +
					"in place. Default: `false`.",
				Optional: true,
			},
			"cache_from": schema.ListAttribute{
				MarkdownDescription: "Images whose layers the build may reuse as cache, such as the one that an earlier CI run " +
					"pushed. BuildKit reads them from a registry if they were built with `BUILDKIT_INLINE_CACHE = \"1\"` in " +
					"`args`; the classic builder uses only images on the engine. Not part of the hash: changing it builds nothing " +
					"by itself. Changed in place. Default: the engine's own cache.",
				Optional:    true,
				ElementType: types.StringType,
				Validators:  []validator.List{given.NoNulls{}, listvalidator.ValueStringsAre(check(image.CheckReference))},
			},
			"builder": schema.StringAttribute{
				MarkdownDescription: "Builder: `buildkit` or `classic`. `classic` supports neither `RUN --mount` nor secrets. " +
					"`buildkit` takes no image id in `FROM`, such as the `reference` of an image that is not pushed. Not part of " +
					"the hash: changing it builds nothing by itself. Changed in place. Default: `buildkit` where the " +
					"engine has it (Docker 18.09 or newer, Linux), otherwise `classic`.",
				Optional: true,
				Validators: []validator.String{
					stringvalidator.OneOf(image.BuildKit, image.Classic), knowsSecrets{},
				},
			},
			"secrets": secretsAttribute(),
		},
	}
}

func secretsAttribute() schema.MapNestedAttribute {
	return schema.MapNestedAttribute{
		MarkdownDescription: "Secrets by id, at most 500 KiB each, for build steps with BuildKit: `RUN " +
			"--mount=type=secret,id=token` reads `/run/secrets/token`. They are in no layer. Not part of the hash: changing " +
			"one builds nothing by itself. Changed in place. Default: none.",
		Optional:   true,
		Validators: []validator.Map{given.NoNulls{}},
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"value_wo": schema.StringAttribute{
				MarkdownDescription: "The value, best from an ephemeral variable or resource. It is in no plan and no state. " +
					"Needs Terraform 1.11.",
				Required:  true,
				Sensitive: true,
				WriteOnly: true,
			},
		}},
	}
}

// check is a validator that calls a function of the image package.
type check func(string) error

func (check) Description(context.Context) string { return "must be well formed" }

func (check) MarkdownDescription(context.Context) string { return "must be well formed" }

func (c check) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if err := c(req.ConfigValue.ValueString()); err != nil {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid Image Name", req.Path.String()+" "+err.Error()+".")
	}
}

// knowsSecrets refuses secrets with the classic builder.
type knowsSecrets struct{}

// Description implements validator.Describer.
func (knowsSecrets) Description(context.Context) string {
	return "must be buildkit where there are secrets"
}

// MarkdownDescription implements validator.Describer.
func (v knowsSecrets) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

// ValidateString implements validator.String.
func (knowsSecrets) ValidateString(ctx context.Context, req validator.StringRequest,
	resp *validator.StringResponse) {
	if req.ConfigValue.ValueString() != image.Classic {
		return
	}
	var secrets types.Map
	at := req.Path.ParentPath().AtName("secrets")
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, at, &secrets)...)
	if len(secrets.Elements()) > 0 {
		resp.Diagnostics.AddAttributeError(req.Path, "Secrets Of The Classic Builder", fmt.Sprintf(
			"%s must not be classic while there are %s: only BuildKit knows them. Leave %s out, or set it to buildkit.",
			req.Path, at, req.Path))
	}
}
