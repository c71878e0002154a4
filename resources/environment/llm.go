package environment

import (
	"context"
	"reflect"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/collection"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/given"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// LLMRoute is an element of llm. The map key is its name.
type LLMRoute struct {
	API           types.String `tfsdk:"api"`
	Upstream      types.String `tfsdk:"upstream"`
	Credential    types.String `tfsdk:"credential"`
	Models        types.Map    `tfsdk:"models"`
	PriceSource   types.String `tfsdk:"price_source"`
	PricesAsOf    types.String `tfsdk:"prices_as_of"`
	LeaseLimits   types.Object `tfsdk:"lease_limits"`
	MonthlyLimits types.Object `tfsdk:"monthly_limits"`
}

// LLMModel is an element of models. The map key is its name.
type LLMModel struct {
	Input           types.String `tfsdk:"input_usd_per_million"`
	CachedInput     types.String `tfsdk:"cached_input_usd_per_million"`
	CacheWrite      types.String `tfsdk:"cache_write_usd_per_million"`
	Output          types.String `tfsdk:"output_usd_per_million"`
	MaxInputTokens  types.Int64  `tfsdk:"max_input_tokens"`
	MaxOutputTokens types.Int64  `tfsdk:"max_output_tokens"`
}

// LLMLimits are lease_limits and monthly_limits.
type LLMLimits struct {
	USD      types.String `tfsdk:"usd"`
	Requests types.Int64  `tfsdk:"requests"`
	Tokens   types.Int64  `tfsdk:"tokens"`
}

func llmAttribute() schema.MapNestedAttribute {
	return schema.MapNestedAttribute{
		Optional:   true,
		Validators: []validator.Map{given.NoNulls{}},
		MarkdownDescription: "Routes to models, by name: 1 to 32 lower-case letters, digits and `-`. A program in a " +
			"sandbox calls the address in `LLM_<NAME>_URL` without a key, with `network` `none` too. The environment's " +
			"gateway adds the key, and records the tokens and the cost of each call as the upstream reports them; see the " +
			"[guide on models](../guides/models.md). Not with `network` `full`. Changed in place; running sandboxes " +
			"keep the addresses that they began with. Default: none.",
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"api": schema.StringAttribute{
				MarkdownDescription: "Protocol of the upstream: `openai`, `anthropic` or `openrouter`.",
				Required:            true,
			},
			"upstream": schema.StringAttribute{
				MarkdownDescription: "Base URL of the upstream, without `/v1`, such as that of a LiteLLM proxy. A private " +
					"address must be in `private_cidrs` of `network`. Default: the API's own, such as `https://api.openai.com`.",
				Optional:   true,
				Validators: []validator.String{given.Text{}},
			},
			"credential": schema.StringAttribute{
				MarkdownDescription: "Name of the secret in `secrets` that is the upstream's key. No sandbox gets that secret.",
				Required:            true,
			},
			"models": schema.MapNestedAttribute{
				MarkdownDescription: "Models that may be called, at least one, by the name that requests use, with their list " +
					"prices. At most 64.",
				Required:     true,
				Validators:   []validator.Map{given.NoNulls{}},
				NestedObject: schema.NestedAttributeObject{Attributes: llmModelAttributes()},
			},
			"price_source": schema.StringAttribute{
				MarkdownDescription: "Where the prices are from, such as the address of a price list. Default: none.",
				Optional:            true,
				Validators:          []validator.String{given.Text{}},
			},
			"prices_as_of": schema.StringAttribute{
				MarkdownDescription: "Date of the prices, such as `2026-11-24`. Default: none.",
				Optional:            true,
				Validators:          []validator.String{given.Text{}},
			},
			"lease_limits":   llmLimitsAttribute("Limits of each lease, from its beginning."),
			"monthly_limits": llmLimitsAttribute("Limits of the environment in a calendar month (UTC)."),
		}},
	}
}

func llmModelAttributes() map[string]schema.Attribute {
	price := func(of string) schema.StringAttribute {
		return schema.StringAttribute{
			MarkdownDescription: "US dollars for a million " + of,
			Optional:            true,
			Validators:          []validator.String{dollars{}},
		}
	}
	required := func(a schema.StringAttribute) schema.StringAttribute {
		a.Optional, a.Required = false, true
		return a
	}
	bound := func(description string) schema.Int64Attribute {
		return schema.Int64Attribute{
			MarkdownDescription: description,
			Optional:            true,
			Validators:          []validator.Int64{int64validator.AtLeast(1)},
		}
	}
	return map[string]schema.Attribute{
		"input_usd_per_million":  required(price("input tokens, such as `\"0.25\"`.")),
		"output_usd_per_million": required(price("output tokens, those of reasoning included.")),
		"cached_input_usd_per_million": price(
			"input tokens from the upstream's cache. Default: `input_usd_per_million`."),
		"cache_write_usd_per_million": price("input tokens that the upstream puts into its cache. Default: " +
			"`input_usd_per_million`, twice that for `anthropic`."),
		"max_input_tokens": bound("The most input tokens of a call, 1 to 10000000. A call whose usage is unknown costs " +
			"what its bounds cost. Default: `200000`."),
		"max_output_tokens": bound("The most output tokens of a call, 1 to 10000000. A call that asks for more is " +
			"refused. Default: `32768`."),
	}
}

func llmLimitsAttribute(description string) schema.SingleNestedAttribute {
	count := func(of string) schema.Int64Attribute {
		return schema.Int64Attribute{
			MarkdownDescription: of + " Default: no limit.",
			Optional:            true,
			Validators:          []validator.Int64{int64validator.AtLeast(1)},
		}
	}
	return schema.SingleNestedAttribute{
		MarkdownDescription: description + " Once one is reached, further calls are refused. Default: no limits.",
		Optional:            true,
		Attributes: map[string]schema.Attribute{
			"usd": schema.StringAttribute{
				MarkdownDescription: "US dollars at list price, more than 0. Default: no limit.",
				Optional:            true,
				Validators:          []validator.String{dollars{positive: true}},
			},
			"requests": count("Number of calls."),
			"tokens":   count("Input and output tokens together."),
		},
	}
}

// expandLLM returns the known routes, with assumed in place of an unknown credential. It assumes that other unknown
// values are valid.
func (m *Model) expandLLM(ctx context.Context, assumed string, diags *diag.Diagnostics) map[string]sandbox.LLMRoute {
	if len(m.LLM.Elements()) == 0 {
		return nil
	}
	routes := make(map[string]sandbox.LLMRoute)
	for name, r := range collection.Objects[LLMRoute](ctx, m.LLM, diags) {
		route := sandbox.LLMRoute{
			API:           sandbox.LLMAPI(orAssumed(r.API, string(sandbox.LLMOpenAI))),
			Upstream:      r.Upstream.ValueString(),
			Credential:    orAssumed(r.Credential, assumed),
			PriceSource:   r.PriceSource.ValueString(),
			PricesAsOf:    r.PricesAsOf.ValueString(),
			LeaseLimits:   expandLLMLimits(ctx, r.LeaseLimits, diags),
			MonthlyLimits: expandLLMLimits(ctx, r.MonthlyLimits, diags),
			Models:        make(map[string]sandbox.LLMModel),
		}
		for model, e := range collection.Objects[LLMModel](ctx, r.Models, diags) {
			route.Models[model] = sandbox.LLMModel{
				Input: expandUSD(e.Input), CachedInput: pointerUSD(e.CachedInput), CacheWrite: pointerUSD(e.CacheWrite),
				Output: expandUSD(e.Output), MaxInputTokens: e.MaxInputTokens.ValueInt64(),
				MaxOutputTokens: e.MaxOutputTokens.ValueInt64(),
			}
		}
		if r.Models.IsUnknown() || len(route.Models) < len(r.Models.Elements()) {
			route.Models["unknown"] = sandbox.LLMModel{}
		}
		routes[name] = route
	}
	return routes
}

func expandLLMLimits(ctx context.Context, of types.Object, diags *diag.Diagnostics) sandbox.LLMLimits {
	if of.IsNull() || of.IsUnknown() {
		return sandbox.LLMLimits{}
	}
	var l LLMLimits
	diags.Append(of.As(ctx, &l, basetypes.ObjectAsOptions{})...)
	return sandbox.LLMLimits{USD: expandUSD(l.USD), Requests: l.Requests.ValueInt64(), Tokens: l.Tokens.ValueInt64()}
}

// expandUSD returns an amount, or 0 if it is null, unknown or invalid. The validator reports invalid amounts.
func expandUSD(of types.String) (n sandbox.NanoUSD) {
	if n.UnmarshalText([]byte(of.ValueString())) != nil {
		return 0
	}
	return n
}

func pointerUSD(of types.String) *sandbox.NanoUSD {
	if of.IsNull() || of.IsUnknown() {
		return nil
	}
	n := expandUSD(of)
	return &n
}

// flattenLLM keeps the model's routes if they match the environment.
func (m *Model) flattenLLM(ctx context.Context, spec sandbox.EnvironmentSpec, diags *diag.Diagnostics) {
	now := sandbox.EnvironmentSpec{LLM: m.expandLLM(ctx, "", diags)}.WithDefaults()
	if !m.LLM.IsUnknown() && reflect.DeepEqual(now.LLM, spec.LLM) {
		return
	}
	routes := make(map[string]LLMRoute, len(spec.LLM))
	for name, r := range spec.LLM {
		routes[name] = flattenLLMRoute(ctx, r, diags)
	}
	m.LLM = collection.Map(ctx, llmAttribute(), routes, diags)
}

// flattenLLMRoute omits values that equal their defaults.
func flattenLLMRoute(ctx context.Context, r sandbox.LLMRoute, diags *diag.Diagnostics) LLMRoute {
	if r.Upstream == r.API.Upstream() {
		r.Upstream = ""
	}
	models := make(map[string]LLMModel, len(r.Models))
	for name, m := range r.Models {
		usual := sandbox.LLMModel{Input: m.Input, Output: m.Output}.WithDefaults(r.API)
		models[name] = LLMModel{
			Input: types.StringValue(m.Input.String()), CachedInput: textUSD(m.CachedInput, usual.CachedInput),
			CacheWrite: textUSD(m.CacheWrite, usual.CacheWrite), Output: types.StringValue(m.Output.String()),
			MaxInputTokens:  unlessInt64(m.MaxInputTokens, usual.MaxInputTokens),
			MaxOutputTokens: unlessInt64(m.MaxOutputTokens, usual.MaxOutputTokens),
		}
	}
	all, d := types.MapValueFrom(ctx, types.ObjectType{AttrTypes: collection.Types(llmModelAttributes())}, models)
	diags.Append(d...)
	return LLMRoute{
		API: value.String(r.API), Upstream: value.String(r.Upstream), Credential: value.String(r.Credential), Models: all,
		PriceSource: value.String(r.PriceSource), PricesAsOf: value.String(r.PricesAsOf),
		LeaseLimits:   flattenLLMLimits(ctx, r.LeaseLimits, diags),
		MonthlyLimits: flattenLLMLimits(ctx, r.MonthlyLimits, diags),
	}
}

// textUSD returns an amount, or null if it is the usual one.
func textUSD(n, usual *sandbox.NanoUSD) types.String {
	if n == nil || *n == *usual {
		return types.StringNull()
	}
	return types.StringValue(n.String())
}

// unlessInt64 returns a number, or null if it is the usual one.
func unlessInt64(n, usual int64) types.Int64 {
	if n == usual {
		return types.Int64Null()
	}
	return types.Int64Value(n)
}

func flattenLLMLimits(ctx context.Context, l sandbox.LLMLimits, diags *diag.Diagnostics) types.Object {
	of := collection.Types(llmLimitsAttribute("").Attributes)
	if l == (sandbox.LLMLimits{}) {
		return types.ObjectNull(of)
	}
	var none sandbox.NanoUSD
	limits := LLMLimits{
		USD: textUSD(&l.USD, &none), Requests: unlessInt64(l.Requests, 0), Tokens: unlessInt64(l.Tokens, 0),
	}
	object, d := types.ObjectValueFrom(ctx, of, limits)
	diags.Append(d...)
	return object
}

// locateLLM finds a field below llm: llm.main.models.gpt-5.1.input_usd_per_million. A model's name may contain dots.
func locateLLM(rest string) path.Path {
	at := path.Root("llm")
	if rest == "" {
		return at
	}
	name, rest, _ := strings.Cut(rest, ".")
	if at = at.AtMapKey(name); rest == "" {
		return at
	}
	attribute, rest, _ := strings.Cut(rest, ".")
	if at = at.AtName(attribute); rest == "" {
		return at
	}
	if attribute != "models" {
		return at.AtName(rest)
	}
	i := strings.LastIndexByte(rest, '.')
	return at.AtMapKey(rest[:max(i, 0)]).AtName(rest[i+1:])
}
