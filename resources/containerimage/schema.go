package containerimage

import (
	"context"

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
		MarkdownDescription: "Builds a container image on the Docker engine from a local directory, or takes one of a registry, and pushes it where `push` says so.\n\n" +
			"A changed file shows in the plan as a changed `context_hash` and is built in place: " +
			"the new image first, then its tags move; sandboxes that already run keep the old one.\n\n" +
			"The hash covers the path, mode and content of every file that `.dockerignore` lets through, the Dockerfile, arguments, target, platform and labels, and neither times nor owners. " +
			"Base images are not part of the hash: pin them by digest.\n\n" +
			"Only the context that was approved is built. One that changes between plan and apply is an error and nothing is built: Terraform plans once more before it applies and then reports an " +
			"inconsistent final plan for `context_hash`; a change later than that is the provider's own error. Plan again in both cases.\n\n" +
			"The engine's BuildKit builds, where it has it, else its classic builder.",
		Attributes: attributes(),
		Blocks: map[string]schema.Block{
			"build":         buildBlock(),
			"source":        sourceBlock(),
			"registry_auth": authBlock(),
			"timeouts": timeout.Block(ctx, timeouts.Opts{
				Create: true, CreateDescription: "How long build, pull and push may take. Default: `20m`.",
				Update: true, UpdateDescription: "How long a rebuild, pull and push may take. Default: `20m`.",
			}),
		},
	}
}

func attributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"name": schema.StringAttribute{
			MarkdownDescription: "Name of the image without tag, such as `catan-player` or `registry.example.com/games/catan-player`. **Changing it replaces the image.**",
			Required:            true,
			Validators:          []validator.String{check(image.CheckName)},
			PlanModifiers:       []planmodifier.String{stringplanmodifier.RequiresReplace()},
		},
		"tags": schema.SetAttribute{
			MarkdownDescription: "Tags that point to the image; they are moved and removed in place. Default: `[\"latest\"]`.",
			Optional:            true,
			Computed:            true,
			ElementType:         types.StringType,
			Default:             setdefault.StaticValue(types.SetValueMust(types.StringType, []attr.Value{types.StringValue("latest")})),
			Validators:          []validator.Set{setvalidator.SizeAtLeast(1), setvalidator.ValueStringsAre(check(image.CheckTag))},
		},
		"push": schema.BoolAttribute{
			MarkdownDescription: "Whether every tag is pushed to the registry that `name` begins with, from where other engines can be given it with `docker pull`: no reconciler pulls by itself. " +
				"Changed in place for a build; turning it off leaves what was pushed. **Changing it replaces an image that has a `source`.** Default: `false`.",
			Optional: true,
			Computed: true,
			Default:  booldefault.StaticBool(false),
		},
		"on_destroy": schema.StringAttribute{
			MarkdownDescription: "What becomes of the image when it is destroyed, or superseded by another. `untag` removes the tags of this resource, and the engine removes the image with its last name; " +
				"in a registry, the image stays without them, and tags that it does not let be removed stay with a warning. " +
				"`delete` removes the image under every name, in the registry too. `keep` leaves all as it is. An image that a container uses stays on the engine, with a warning when it was to be destroyed. Changed in place. Default: `untag`.",
			Optional:   true,
			Computed:   true,
			Default:    stringdefault.StaticString(onDestroyUntag),
			Validators: []validator.String{stringvalidator.OneOf(onDestroyKeep, onDestroyUntag, onDestroyDelete)},
		},
		"keep_tags": schema.Int64Attribute{
			MarkdownDescription: "How many tags of `name` its registry keeps, at least 1, counted from the newest image, as images say when they were created; older ones are removed by every apply that creates or changes this resource. " +
				"The tags of this resource count as the newest. Never removed are the image of this resource, what an environment or a lease of the provider's ledger uses, and images that do not say when they were created. " +
				"Needs `push`. What cannot be removed stays, with a warning; a registry that removes no single tags, as Docker's before version 3, removes an old image with all its tags. Changed in place. Default: none, nothing is removed.",
			Optional:   true,
			Validators: []validator.Int64{int64validator.AtLeast(1)},
		},
		"id":           computed("The same as `name`."),
		"image_id":     computed("Id of the image on the engine, `sha256:…`. Null when it was copied from registry to registry."),
		"digest":       computed("Digest of the image in its registry, `sha256:…`, known at plan for a `source`. Null for a build that is not pushed."),
		"reference":    computed("Reference that always means this very image, for `image` of a `sandbox_environment`: its name with its digest or, as long as it exists on the engine only, its id."),
		"context_hash": computed("Hash of everything that the image is built from, known at plan. Null for a `source`."),
		"instance":     computed("Id of the Docker engine that has the image. When another engine answers, a plan is an error and not a removal. Null when it was copied from registry to registry."),
		"copies": schema.SetAttribute{
			MarkdownDescription: "Where the image is: `engine`, `registry` or both. A copy that was lost shows in the plan, and is made again from the other.",
			Computed:            true,
			ElementType:         types.StringType,
		},
		"size": schema.Int64Attribute{
			MarkdownDescription: "Size of the image in bytes: of its unpacked layers on the engine or, when it was copied from registry to registry, of its packed ones there.",
			Computed:            true,
		},
		"layers": schema.ListAttribute{
			MarkdownDescription: "Digests of the image's unpacked layers, the lowest first. Where a `source` is copied for several platforms, those of linux/amd64.",
			Computed:            true,
			ElementType:         types.StringType,
		},
	}
}

func computed(description string) schema.StringAttribute {
	return schema.StringAttribute{MarkdownDescription: description, Computed: true}
}

func buildBlock() schema.Block {
	return schema.SingleNestedBlock{
		MarkdownDescription: "How the image is built. Either this block or `source` is required.",
		Validators: []validator.Object{
			objectvalidator.ExactlyOneOf(path.MatchRoot("build"), path.MatchRoot("source")),
			objectvalidator.AlsoRequires(path.MatchRelative().AtName("context")),
		},
		Attributes: map[string]schema.Attribute{
			"context": schema.StringAttribute{
				MarkdownDescription: "Directory that is sent to the engine, such as `\"${path.module}/player\"`. Its `.dockerignore` is obeyed. Required here. Changed in place.",
				Optional:            true,
				Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"dockerfile": schema.StringAttribute{
				MarkdownDescription: "Path of the Dockerfile in the context. Changed in place. Default: `" + image.DefaultDockerfile + "`.",
				Optional:            true,
				Validators: []validator.String{
					stringvalidator.LengthAtLeast(1), stringvalidator.ConflictsWith(path.MatchRelative().AtParent().AtName("dockerfile_inline")),
				},
			},
			"dockerfile_inline": schema.StringAttribute{
				MarkdownDescription: "Text of a Dockerfile that is not in the context, in place of `dockerfile`. `COPY` does not see it. Changed in place. Default: none.",
				Optional:            true,
				Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"args": schema.MapAttribute{
				MarkdownDescription: "Values of the Dockerfile's `ARG`s. Not for secrets: they stay visible in the image's history and in Terraform's state. Changed in place. Default: none.",
				Optional:            true,
				ElementType:         types.StringType,
			},
			"target": schema.StringAttribute{
				MarkdownDescription: "Stage to build. Changed in place. Default: the last one.",
				Optional:            true,
			},
			"platform": schema.StringAttribute{
				MarkdownDescription: "Platform to build for, such as `linux/amd64`. Changed in place. Default: the engine's.",
				Optional:            true,
			},
			"labels": schema.MapAttribute{
				MarkdownDescription: "Labels of the image. Changed in place. Default: none but `" + image.ContextHashLabel + "`.",
				Optional:            true,
				ElementType:         types.StringType,
			},
			"no_cache": schema.BoolAttribute{
				MarkdownDescription: "Whether a build carries out every step again. It is no part of the hash: by itself it builds nothing. Changed in place. Default: `false`.",
				Optional:            true,
			},
			"cache_from": schema.ListAttribute{
				MarkdownDescription: "References of images whose steps need not be carried out again, such as the one that an earlier run of CI pushed. " +
					"BuildKit takes one from a registry too, if it was built with the argument `BUILDKIT_INLINE_CACHE = \"1\"` in `args`; the classic builder takes what the engine has. " +
					"It is no part of the hash: by itself it builds nothing. Changed in place. Default: none, only the engine's own cache.",
				Optional:    true,
				ElementType: types.StringType,
				Validators:  []validator.List{listvalidator.ValueStringsAre(check(image.CheckReference))},
			},
			"builder": schema.StringAttribute{
				MarkdownDescription: "What of the engine builds: `buildkit` or `classic`, which knows neither `RUN --mount` nor secrets. It is no part of the hash: by itself it builds nothing. Changed in place. Default: `buildkit` where the engine has it (Docker since 18.09, for Linux), else `classic`.",
				Optional:            true,
				Validators:          []validator.String{stringvalidator.OneOf(image.BuildKit, image.Classic)},
			},
			"secrets": secretsAttribute(),
		},
	}
}

func secretsAttribute() schema.MapNestedAttribute {
	return schema.MapNestedAttribute{
		MarkdownDescription: "Secrets by id, of at most 500 KiB each, for steps of BuildKit that ask for them: `RUN --mount=type=secret,id=token` finds `/run/secrets/token`. " +
			"They get into no layer, and are no part of the hash: a changed one by itself builds nothing. Changed in place. Default: none.",
		Optional: true,
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"value_wo": schema.StringAttribute{
				MarkdownDescription: "The value, best of an ephemeral variable or resource. It is in no plan and no state. Needs Terraform 1.11.",
				Required:            true,
				Sensitive:           true,
				WriteOnly:           true,
			},
		}},
	}
}

// check makes a validator out of a function of the image package.
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
