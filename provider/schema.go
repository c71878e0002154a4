package provider

import (
	"context"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker"
)

// model is the provider's configuration.
type model struct {
	Ledger     types.String     `tfsdk:"ledger"`
	StateURL   types.String     `tfsdk:"state_url"`
	Reconciler *reconcilerModel `tfsdk:"reconciler"`
	Docker     *dockerModel     `tfsdk:"docker"`
	Cloudflare *cloudflareModel `tfsdk:"cloudflare"`
}

type reconcilerModel struct {
	URL       types.String `tfsdk:"url"`
	Token     types.String `tfsdk:"token"`
	AllowHTTP types.Bool   `tfsdk:"allow_http"`
}

type dockerModel struct {
	Host      types.String `tfsdk:"host"`
	Context   types.String `tfsdk:"context"`
	PriceBook types.String `tfsdk:"price_book"`
	// NetworkPool matters where this process runs the service.
	NetworkPool types.String `tfsdk:"network_pool"`
}

// cloudflareModel matters where this process runs the service.
type cloudflareModel struct {
	AccountID types.String `tfsdk:"account_id"`
	Token     types.String `tfsdk:"api_token"`
	BaseURL   types.String `tfsdk:"api_base_url"`
}

// Schema describes the provider's configuration.
func (p *Provider) Schema(_ context.Context, _ provider.SchemaRequest, resp *provider.SchemaResponse) {
	notEmpty := []validator.String{stringvalidator.LengthAtLeast(1)}
	resp.Schema = schema.Schema{
		MarkdownDescription: "Leases sandboxes to agents: environments, leases and container images, with drift and cost in the plan.",
		Attributes: map[string]schema.Attribute{
			"ledger": schema.StringAttribute{
				MarkdownDescription: "URL of the embedded ledger, such as `sqlite:///var/lib/sandbox/ledger.db`, for use without a reconciler. " +
					"Default: `ledger.db` under `$XDG_STATE_HOME/terraform-provider-sandbox`, or under `~/.local/state/terraform-provider-sandbox`. Conflicts with `reconciler`.",
				Optional:   true,
				Validators: notEmpty,
			},
			"state_url": schema.StringAttribute{
				MarkdownDescription: "Bucket in which environments keep what their agents have under `/data`, for use without a reconciler: `file:///absolute/path`, or `s3://name?region=eu-west-1` " +
					"(for Cloudflare R2 `s3://name?region=auto&endpoint=https://ACCOUNT.r2.cloudflarestorage.com`), whose credentials come from the environment as for every AWS tool. " +
					"Default: the directory `state` beside a ledger in a file; a ledger in PostgreSQL has none. Conflicts with `reconciler`.",
				Optional:   true,
				Validators: notEmpty,
			},
		},
		Blocks: map[string]schema.Block{
			"reconciler": schema.SingleNestedBlock{
				MarkdownDescription: "Reconciler that keeps the ledger and runs the sandboxes. Without it, and without `SANDBOX_RECONCILER_URL`, the provider does that itself: " +
					"then nothing puts idle sandboxes to sleep, and a lease whose time is up is ended by the next command that touches it.",
				Attributes: map[string]schema.Attribute{
					"url": schema.StringAttribute{
						MarkdownDescription: "URL of the reconciler. Default: `SANDBOX_RECONCILER_URL`.",
						Optional:            true,
						Validators:          notEmpty,
					},
					"token": schema.StringAttribute{
						MarkdownDescription: "Bearer token. Default: `SANDBOX_RECONCILER_TOKEN`, which keeps it out of the configuration.",
						Optional:            true,
						Sensitive:           true,
						Validators:          notEmpty,
					},
					"allow_http": schema.BoolAttribute{
						MarkdownDescription: "Accept an `http://` URL of another machine, to which the token travels in clear text. Default: `false`; loopback addresses need no permission.",
						Optional:            true,
					},
				},
			},
			"docker": schema.SingleNestedBlock{
				MarkdownDescription: "Docker engine that builds images and, without a reconciler, runs the sandboxes.",
				Attributes: map[string]schema.Attribute{
					"host": schema.StringAttribute{
						MarkdownDescription: "Address of the engine, `unix://`, `tcp://` or `ssh://`. Default: as the docker command finds it (`context`, `DOCKER_HOST`, `DOCKER_CONTEXT`, the current context, the default socket).",
						Optional:            true,
						Validators:          append(notEmpty, stringvalidator.ConflictsWith(contextPath())),
					},
					"context": schema.StringAttribute{
						MarkdownDescription: "Context of the docker command line. Conflicts with `host`. Default: as for `host`.",
						Optional:            true,
						Validators:          notEmpty,
					},
					"network_pool": schema.StringAttribute{
						MarkdownDescription: "IPv4 range of /12 to /28 from which each sandbox whose network is `full` gets a /28; nothing else may use it. A reconciler is told by its flag `--network-pool`. Default: `" + docker.DefaultNetworkPool.String() + "`.",
						Optional:            true,
						Validators:          notEmpty,
					},
					"price_book": schema.StringAttribute{
						MarkdownDescription: "Path of a JSON file with what the engine costs. Estimates of the plan use it, and so does the embedded ledger; a reconciler has its own, which should be the same file. Default: everything is free.",
						Optional:            true,
						Validators:          notEmpty,
					},
				},
			},
			"cloudflare": schema.SingleNestedBlock{
				MarkdownDescription: "Cloudflare account on which environments with `backend = \"cloudflare\"` run, for use without a reconciler; a reconciler has its own (`--cloudflare-account`). " +
					"The token needs the permissions " + permissions() + ".",
				Attributes: map[string]schema.Attribute{
					"account_id": schema.StringAttribute{
						MarkdownDescription: "Id of the account, 32 hexadecimal digits. Default: `" + deploy.EnvAccount + "`.",
						Optional:            true,
						Validators:          notEmpty,
					},
					"api_token": schema.StringAttribute{
						MarkdownDescription: "API token. Default: `" + deploy.EnvToken + "`, which keeps it out of the configuration.",
						Optional:            true,
						Sensitive:           true,
						Validators:          notEmpty,
					},
					"api_base_url": schema.StringAttribute{
						MarkdownDescription: "Address of the API. Default: `" + deploy.EnvURL + "`, then Cloudflare's.",
						Optional:            true,
						Validators:          notEmpty,
					},
				},
			},
		},
	}
}

// permissions lists what a token needs.
func permissions() string {
	names := make([]string, len(deploy.Permissions))
	for i, p := range deploy.Permissions {
		names[i] = "*" + string(p) + "*"
	}
	return strings.Join(names, ", ")
}
