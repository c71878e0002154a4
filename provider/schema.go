package provider

import (
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/cloudflare/deploy"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/networks"
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
	CAFile    types.String `tfsdk:"ca_file"`
	CertFile  types.String `tfsdk:"client_certificate_file"`
	KeyFile   types.String `tfsdk:"client_key_file"`
	ProxyURL  types.String `tfsdk:"proxy_url"`
}

type dockerModel struct {
	Host      types.String `tfsdk:"host"`
	Context   types.String `tfsdk:"context"`
	PriceBook types.String `tfsdk:"price_book"`
	// NetworkPool has an effect only if this process runs the service.
	NetworkPool types.String `tfsdk:"network_pool"`
}

// cloudflareModel configures the account's registry and, if this process runs the service, its environments.
type cloudflareModel struct {
	AccountID types.String `tfsdk:"account_id"`
	Token     types.String `tfsdk:"api_token"`
	BaseURL   types.String `tfsdk:"api_base_url"`
	Policy    types.String `tfsdk:"scheduling_policy"`
	// MaxInstances has an effect only with the policy default.
	MaxInstances types.Int64 `tfsdk:"max_instances"`
}

// Schema describes the provider's configuration.
func (p *Provider) Schema(_ context.Context, _ provider.SchemaRequest, resp *provider.SchemaResponse) {
	notEmpty := []validator.String{stringvalidator.LengthAtLeast(1)}
	resp.Schema = schema.Schema{
		MarkdownDescription: "Leases sandboxes to agents: environments, leases and container images, with drift and " +
			"cost in the plan.",
		Attributes: map[string]schema.Attribute{
			"ledger": schema.StringAttribute{
				MarkdownDescription: "URL of the embedded ledger, such as `sqlite:///var/lib/sandbox/ledger.db`, for use " +
					"without a reconciler. Default: `ledger.db` in `$XDG_STATE_HOME/terraform-provider-sandbox` or " +
					"`~/.local/state/terraform-provider-sandbox`. Conflicts with `reconciler`.",
				Optional:   true,
				Validators: notEmpty,
			},
			"state_url": schema.StringAttribute{
				MarkdownDescription: "Bucket for snapshots of `/data`, for use without a reconciler: `file:///absolute/path`, " +
					"or `s3://name?region=eu-west-1` (for Cloudflare R2 " +
					"`s3://name?region=auto&endpoint=https://ACCOUNT.r2.cloudflarestorage.com`). S3 credentials come from the " +
					"environment, as for AWS tools. Default: the directory `state` beside a SQLite ledger; none for PostgreSQL. " +
					"Conflicts with `reconciler`.",
				Optional:   true,
				Validators: notEmpty,
			},
			"reconciler": schema.SingleNestedAttribute{
				Optional: true,
				MarkdownDescription: "Reconciler that keeps the ledger and runs the sandboxes. Without it the provider does " +
					"that itself: idle sandboxes do not sleep, and each run of Terraform first removes what has expired. " +
					"Default: none, unless `SANDBOX_RECONCILER_URL` is set.",
				Attributes: map[string]schema.Attribute{
					"url": schema.StringAttribute{
						MarkdownDescription: "URL of the reconciler. Default: `SANDBOX_RECONCILER_URL`.",
						Optional:            true,
						Validators:          notEmpty,
					},
					"token": schema.StringAttribute{
						MarkdownDescription: "Bearer token. Default: `SANDBOX_RECONCILER_TOKEN`, which keeps it out of " +
							"the configuration.",
						Optional:   true,
						Sensitive:  true,
						Validators: notEmpty,
					},
					"ca_file": schema.StringAttribute{
						MarkdownDescription: "PEM file with the CA certificates of the reconciler. Default: the system's, or the " +
							"file in `SSL_CERT_FILE`.",
						Optional:   true,
						Validators: notEmpty,
					},
					"client_certificate_file": schema.StringAttribute{
						MarkdownDescription: "PEM file with a client certificate, for a reconciler or proxy that requires one. Needs " +
							"`client_key_file`. Default: none.",
						Optional:   true,
						Validators: append(notEmpty, stringvalidator.AlsoRequires(reconcilerPath("client_key_file"))),
					},
					"client_key_file": schema.StringAttribute{
						MarkdownDescription: "PEM file with the key of `client_certificate_file`. Default: none.",
						Optional:            true,
						Validators:          append(notEmpty, stringvalidator.AlsoRequires(reconcilerPath("client_certificate_file"))),
					},
					"proxy_url": schema.StringAttribute{
						MarkdownDescription: "URL of a proxy to the reconciler, `http://`, `https://` or `socks5://`. Default: " +
							"`HTTPS_PROXY` or `HTTP_PROXY`, unless `NO_PROXY` excludes the reconciler.",
						Optional:   true,
						Validators: notEmpty,
					},
					"allow_http": schema.BoolAttribute{
						MarkdownDescription: "Accept an `http://` URL of another machine. The token then travels in clear text. " +
							"Default: `false`; loopback addresses are always accepted.",
						Optional: true,
					},
				},
			},
			"docker": schema.SingleNestedAttribute{
				Optional: true,
				MarkdownDescription: "Docker engine that builds images and, without a reconciler, runs the sandboxes. Default: " +
					"the engine of the docker command.",
				Attributes: map[string]schema.Attribute{
					"host": schema.StringAttribute{
						MarkdownDescription: "Address of the engine, `unix://`, `tcp://` or `ssh://`. Default: as for the docker " +
							"command (`context`, `DOCKER_HOST`, `DOCKER_CONTEXT`, the current context, the default socket).",
						Optional:   true,
						Validators: append(notEmpty, stringvalidator.ConflictsWith(contextPath())),
					},
					"context": schema.StringAttribute{
						MarkdownDescription: "Docker context. Conflicts with `host`. Default: as for `host`.",
						Optional:            true,
						Validators:          notEmpty,
					},
					"network_pool": schema.StringAttribute{
						MarkdownDescription: "IPv4 range, /12 to /28, for sandboxes with network `full`: each gets a /28. Nothing " +
							"else may use the range. A reconciler has the flag `--network-pool`. Default: `" +
							networks.DefaultPool.String() + "`.",
						Optional:   true,
						Validators: notEmpty,
					},
					"price_book": schema.StringAttribute{
						MarkdownDescription: "Path of the engine's price book, a JSON file, for use without a reconciler. Estimates " +
							"and the embedded ledger use it. A reconciler has its own (`--docker-price-book`); one here that differs is " +
							"an error at plan. Default: everything is free, and `max_monthly_cost_usd` cannot be used.",
						Optional:   true,
						Validators: notEmpty,
					},
				},
			},
			"cloudflare": schema.SingleNestedAttribute{
				Optional: true,
				MarkdownDescription: "Cloudflare account for environments with `backend = \"cloudflare\"`, for use without a " +
					"reconciler, which has its own (`--cloudflare-account`), and for images in its registry, with and without a " +
					"reconciler. For environments, the token needs the permissions " +
					permissions() + ". Default: none, unless `" + deploy.EnvAccount + "` and `" + deploy.EnvToken + "` are set.",
				Attributes: map[string]schema.Attribute{
					"account_id": schema.StringAttribute{
						MarkdownDescription: "Account id, 32 hexadecimal digits. Default: `" + deploy.EnvAccount + "`.",
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
						MarkdownDescription: "Base URL of the API. Default: `" + deploy.EnvURL + "`, then Cloudflare's.",
						Optional:            true,
						Validators:          notEmpty,
					},
					"scheduling_policy": schema.StringAttribute{
						MarkdownDescription: "Scheduling policy of new environments: `default` (one image and size per environment; " +
							"a change replaces running containers) or `durable_object` (each start chooses image and size; a change " +
							"replaces no sandbox). Existing environments keep theirs. The size `basic` always uses `default`. Default: " +
							"`default`.",
						Optional:   true,
						Validators: []validator.String{stringvalidator.OneOf(policies()...)},
					},
					"max_instances": schema.Int64Attribute{
						MarkdownDescription: fmt.Sprintf("How many sandboxes of one environment with the scheduling policy `default` "+
							"run at once at most, `1` to `%d`. The account's limits bound all environments together. A change shows as "+
							"drift of existing environments, and their next apply sets it. Default: `%d`.",
							cloudflare.MaxMaxInstances, cloudflare.DefaultMaxInstances),
						Optional:   true,
						Validators: []validator.Int64{int64validator.Between(1, cloudflare.MaxMaxInstances)},
					},
				},
			},
		},
	}
}

// policies lists the scheduling policies.
func policies() []string {
	names := make([]string, len(cloudflare.SchedulingPolicies))
	for i, p := range cloudflare.SchedulingPolicies {
		names[i] = string(p)
	}
	return names
}

// permissions lists the permissions that a token needs.
func permissions() string {
	names := make([]string, len(deploy.Permissions))
	for i, p := range deploy.Permissions {
		names[i] = "*" + string(p) + "*"
	}
	return strings.Join(names, ", ")
}
