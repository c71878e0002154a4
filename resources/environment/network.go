package environment

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/collection"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/given"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Network is the network attribute.
type Network struct {
	Mode         types.String `tfsdk:"mode"`
	Allow        types.Set    `tfsdk:"allow"`
	PrivateCIDRs types.Set    `tfsdk:"private_cidrs"`
	Credentials  types.Map    `tfsdk:"credentials"`
	Authorities  types.String `tfsdk:"authorities"`
}

// Credential is an element of credentials. The map key is its host.
type Credential struct {
	Secret   types.String `tfsdk:"secret"`
	Header   types.String `tfsdk:"header"`
	Scheme   types.String `tfsdk:"scheme"`
	Username types.String `tfsdk:"username"`
}

func networkAttribute() schema.SingleNestedAttribute {
	var hosts []string
	for _, r := range sandbox.DefaultEgress().Allow {
		hosts = append(hosts, "`"+r.Host+"`")
	}
	texts := []validator.Set{given.NoNulls{}, setvalidator.ValueStringsAre(stringvalidator.LengthAtLeast(1))}
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "Network access of the sandboxes. Default: `restricted` with the default of `allow`, on " +
			"Cloudflare `none`.",
		Attributes: map[string]schema.Attribute{
			"mode": schema.StringAttribute{
				MarkdownDescription: "`restricted` reaches the hosts in `allow`, through a gateway that logs every attempt. " +
					"`none` has loopback only. `full` reaches everything that the engine's host reaches, the host itself " +
					"included, but no other sandbox. Changed in place; running sandboxes keep theirs. Default: `restricted`.",
				Optional: true,
				Computed: true,
				Default:  stringdefault.StaticString(string(sandbox.NetworkRestricted)),
			},
			"allow": schema.SetAttribute{
				MarkdownDescription: "Hosts that a `restricted` sandbox may reach by TLS or plain HTTP: `api.github.com`, " +
					"`model.internal:8080`, or `*.example.com` for every name below `example.com`, but not itself. Default ports: " +
					"443 and 80, the only ones on Cloudflare. An empty set allows nothing. Changed in place, also for running " +
					"sandboxes. Default: " +
					strings.Join(hosts, ", ") + ".",
				Optional:    true,
				ElementType: types.StringType,
				Validators:  texts,
			},
			"private_cidrs": schema.SetAttribute{
				MarkdownDescription: "Private address ranges, such as `10.20.0.0/16`, that allowed hosts may be in. Other " +
					"private addresses are refused, whatever name resolves to them. Not on Cloudflare. Default: none.",
				Optional:    true,
				ElementType: types.StringType,
				Validators:  texts,
			},
			"credentials": credentialsAttribute(),
			"authorities": schema.StringAttribute{
				MarkdownDescription: "Certificates of authorities, in PEM, that hosts in `credentials` may have theirs from, " +
					"beside the public ones, such as that of a self-hosted Git server. At most 64 KiB. Docker only. Default: none.",
				Optional:   true,
				Validators: []validator.String{given.Text{}, certificates{}},
			},
		},
	}
}

// certificates refuses a PEM text if any of its certificates cannot be read. The domain checks that it has one.
type certificates struct{}

func (certificates) Description(context.Context) string { return "must be certificates in PEM" }

func (c certificates) MarkdownDescription(ctx context.Context) string { return c.Description(ctx) }

func (c certificates) ValidateString(ctx context.Context, req validator.StringRequest,
	resp *validator.StringResponse) {
	rest := []byte(req.ConfigValue.ValueString())
	for n := 1; n <= strings.Count(req.ConfigValue.ValueString(), "-----BEGIN CERTIFICATE-----"); n++ {
		err := errors.New("it is not in PEM")
		var block *pem.Block
		if block, rest = pem.Decode(rest); block != nil {
			_, err = x509.ParseCertificate(block.Bytes)
		}
		if err != nil {
			resp.Diagnostics.AddAttributeError(req.Path, "Invalid Certificate",
				fmt.Sprintf("%s %s, and number %d cannot be read: %v.", req.Path, c.Description(ctx), n, err))
			return
		}
	}
}

func credentialsAttribute() schema.MapNestedAttribute {
	text := func(description string) schema.StringAttribute {
		return schema.StringAttribute{
			MarkdownDescription: description,
			Optional:            true,
			Validators:          []validator.String{given.Text{}},
		}
	}
	secret := text("Name of the secret in `secrets`. No sandbox gets that secret.")
	secret.Optional, secret.Required = false, true
	return schema.MapNestedAttribute{
		MarkdownDescription: "Credentials that the gateway adds to requests to allowed hosts, by host, such as " +
			"`github.com`. It ends the TLS of these connections itself, with an authority that only the environment's " +
			"sandboxes trust. Leases that began before there were any reach the hosts without. See the " +
			"[guide on security](../guides/security.md). Docker only. Changed in place. Default: none.",
		Optional:   true,
		Validators: []validator.Map{given.NoNulls{}},
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"secret": secret,
			"header": text("Header that gets the credential, in place of what the sandbox sent. Default: `Authorization`."),
			"scheme": text("`bearer` is the word Bearer and the secret, `basic` is `username` and the secret as its password, " +
				"as Git needs it, `raw` is the secret alone. Default: `bearer`, in another header than `Authorization` `raw`."),
			"username": text("User of the scheme `basic`, such as `x-access-token` for a token of GitHub. Default: none; " +
				"required with `basic`."),
		}},
	}
}

// expandNetwork writes the network into a specification. Null and unknown values stay zero.
func expandNetwork(ctx context.Context, n *Network, spec *sandbox.EnvironmentSpec) diag.Diagnostics {
	var diags diag.Diagnostics
	if n == nil {
		return diags
	}
	spec.Network = sandbox.NetworkMode(n.Mode.ValueString())
	if n.Mode.IsNull() { // the schema's default, whatever the backend's default without a network is
		spec.Network = sandbox.NetworkRestricted
	}
	if n.egress() == "" {
		return diags
	}
	e := sandbox.DefaultEgress()
	if !n.Allow.IsNull() {
		e.Allow = expandRules(collection.Known(collection.Strings(ctx, n.Allow, &diags)))
	}
	e.PrivateCIDRs = collection.Known(collection.Strings(ctx, n.PrivateCIDRs, &diags))
	e.Credentials = expandCredentials(ctx, n.Credentials, &diags)
	e.Authorities = n.Authorities.ValueString()
	if len(e.Credentials) == 0 && (n.Credentials.IsUnknown() || len(n.Credentials.Elements()) > 0) {
		e.Authorities = "" // their hosts are unknown
	}
	spec.Egress = &e
	return diags
}

// egress names the first attribute that only mode = "restricted" may have. It returns "" if there is none: an unknown
// attribute may become null.
func (n *Network) egress() string {
	set := func(v attr.Value) bool { return !v.IsNull() && !v.IsUnknown() }
	switch {
	case set(n.Allow):
		return "egress.allow"
	case set(n.PrivateCIDRs):
		return "egress.private_cidrs"
	case set(n.Credentials):
		return "egress.credentials"
	case set(n.Authorities):
		return "egress.authorities"
	default:
		return ""
	}
}

// expandCredentials returns the credentials without unknown values.
func expandCredentials(ctx context.Context, of types.Map, diags *diag.Diagnostics) map[string]sandbox.EgressCredential {
	if len(of.Elements()) == 0 {
		return nil
	}
	all := make(map[string]sandbox.EgressCredential)
	for host, c := range collection.Objects[Credential](ctx, of, diags) {
		if c.Secret.IsUnknown() || c.Header.IsUnknown() || c.Scheme.IsUnknown() || c.Username.IsUnknown() {
			continue
		}
		all[host] = sandbox.EgressCredential{
			Secret: c.Secret.ValueString(), Header: c.Header.ValueString(),
			Scheme: sandbox.CredentialScheme(c.Scheme.ValueString()), Username: c.Username.ValueString(),
		}
	}
	return all
}

func flattenCredentials(ctx context.Context, all map[string]sandbox.EgressCredential,
	diags *diag.Diagnostics) types.Map {
	objects := make(map[string]Credential, len(all))
	for host, c := range all {
		objects[host] = Credential{Secret: value.String(c.Secret), Header: value.String(c.Header),
			Scheme: value.String(c.Scheme), Username: value.String(c.Username)}
	}
	return collection.Map(ctx, credentialsAttribute(), objects, diags)
}

// expandRules merges the texts about one host into one rule. A suffix that is not a port stays part of the name, which
// validation then rejects.
func expandRules(texts []string) []sandbox.EgressRule {
	rules := []sandbox.EgressRule{}
	for _, text := range texts {
		host, ports := text, []int(nil)
		if name, number, ok := strings.Cut(text, ":"); ok {
			if port, err := strconv.Atoi(number); err == nil {
				host, ports = name, []int{port}
			}
		}
		i := slices.IndexFunc(rules, func(r sandbox.EgressRule) bool { return r.Host == host })
		switch {
		case i < 0:
			rules = append(rules, sandbox.EgressRule{Host: host, Ports: ports})
		case len(rules[i].Ports) == 0:
			rules[i].Ports = slices.Concat(sandbox.DefaultEgressPorts, ports)
		default:
			rules[i].Ports = append(rules[i].Ports, ports...)
		}
	}
	for i := range rules {
		slices.Sort(rules[i].Ports)
		rules[i].Ports = slices.Compact(rules[i].Ports)
	}
	return rules
}

// flattenRules writes rules in the form that expandRules reads.
func flattenRules(rules []sandbox.EgressRule) []string {
	texts := []string{}
	for _, r := range rules {
		if len(r.Ports) == 0 {
			texts = append(texts, r.Host)
		}
		for _, port := range r.Ports {
			texts = append(texts, fmt.Sprintf("%s:%d", r.Host, port))
		}
	}
	slices.Sort(texts)
	return texts
}

// flattenNetwork keeps the model's network, even a null one, if it means the same as the environment's.
func (m *Model) flattenNetwork(ctx context.Context, spec sandbox.EnvironmentSpec) diag.Diagnostics {
	now := sandbox.EnvironmentSpec{Backend: spec.Backend}
	diags := expandNetwork(ctx, m.Network, &now)
	now = now.WithDefaults()
	if now.Network == spec.Network && (now.Egress == nil) == (spec.Egress == nil) &&
		sameEgress(now.EgressRules(), spec.EgressRules()) {
		return diags
	}
	n := &Network{
		Mode:         types.StringValue(string(spec.Network)),
		Allow:        types.SetNull(types.StringType),
		PrivateCIDRs: types.SetNull(types.StringType),
		Credentials:  flattenCredentials(ctx, spec.EgressRules().Credentials, &diags),
		Authorities:  value.String(spec.EgressRules().Authorities),
	}
	if spec.Egress != nil {
		n.Allow = collection.Set(ctx, flattenRules(spec.Egress.Allow), &diags)
		if len(spec.Egress.PrivateCIDRs) > 0 {
			n.PrivateCIDRs = collection.Set(ctx, spec.Egress.PrivateCIDRs, &diags)
		}
	}
	m.Network = n
	return diags
}

// sameEgress reports whether two egress rule sets are equal, in any order.
func sameEgress(a, b sandbox.Egress) bool {
	return slices.Equal(flattenRules(a.Allow), flattenRules(b.Allow)) && maps.Equal(a.Credentials, b.Credentials) &&
		a.Authorities == b.Authorities &&
		slices.Equal(slices.Sorted(slices.Values(a.PrivateCIDRs)), slices.Sorted(slices.Values(b.PrivateCIDRs)))
}
