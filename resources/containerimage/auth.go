package containerimage

import (
	"context"
	"crypto/x509"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/configured"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/diagnose"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/given"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Auth is an element of registry_auth. Plan and state never hold its password.
type Auth struct {
	Address  types.String `tfsdk:"address"`
	Username types.String `tfsdk:"username"`
	Password types.String `tfsdk:"password_wo"`
	Version  types.Int64  `tfsdk:"password_wo_version"`
	CA       types.String `tfsdk:"ca_certificate"`
}

func authAttribute() schema.Attribute {
	return schema.ListNestedAttribute{
		Optional:   true,
		Validators: []validator.List{given.NoNulls{}},
		MarkdownDescription: "Credentials and CA certificates, one element per registry, also for the base images of a " +
			"build. A `name` in the registry of the provider's Cloudflare account, `registry.cloudflare.com/ACCOUNT/…`, " +
			"needs none: the provider requests short-lived ones. Other registries use Docker's credentials (`config.json` " +
			"and its credential helpers) unless set here. The classic builder does not use Docker's. Terraform passes no " +
			"password to a refresh or a destroy, so these use Docker's credentials too. If those do not suffice, the " +
			"provider checks a pushed image for drift at plan. Default: Docker's credentials.",
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"address": schema.StringAttribute{
				MarkdownDescription: "Registry, `host` or `host:port`. Default: the registry of `name`.",
				Optional:            true,
				Validators:          []validator.String{given.Text{}},
			},
			"username": schema.StringAttribute{
				MarkdownDescription: "User name. Default: Docker's credentials.",
				Optional:            true,
				Validators: []validator.String{
					given.Text{},
					stringvalidator.AlsoRequires(path.MatchRelative().AtParent().AtName("password_wo")),
				},
			},
			"password_wo": schema.StringAttribute{
				MarkdownDescription: "Password or token, best from an ephemeral variable or resource. It is in no plan and no " +
					"state. Needs Terraform 1.11. Default: Docker's credentials.",
				Optional:  true,
				Sensitive: true,
				WriteOnly: true,
				Validators: []validator.String{
					given.Text{},
					stringvalidator.AlsoRequires(path.MatchRelative().AtParent().AtName("username")),
				},
			},
			"password_wo_version": schema.Int64Attribute{
				MarkdownDescription: "Raise it to push the image again with a changed `password_wo`. Not needed otherwise: " +
					"every push uses the new password. Default: none.",
				Optional: true,
			},
			"ca_certificate": schema.StringAttribute{
				MarkdownDescription: "CA certificates of the registry in PEM. Certificates in `/etc/docker/certs.d` are " +
					"trusted too. Default: the system's.",
				Optional:   true,
				Validators: []validator.String{given.Text{}},
			},
		}},
	}
}

func (m *Model) auths(ctx context.Context) ([]Auth, diag.Diagnostics) {
	var list []Auth
	if m.RegistryAuth.IsNull() || m.RegistryAuth.IsUnknown() {
		return nil, nil
	}
	diags := m.RegistryAuth.ElementsAs(ctx, &list, false)
	return list, diags
}

// ownCredentials reports whether the registry may need a password, which only the configuration has.
func (m *Model) ownCredentials(ctx context.Context) bool {
	auths, diags := m.auths(ctx)
	for _, a := range auths {
		if !a.Username.IsNull() {
			return true
		}
	}
	return diags.HasError()
}

// lacksPassword reports whether a registry may have refused a request only because registry_auth has a password that
// the state lacks. Some registries, as those of GitHub and GitLab, answer 403 and not 401 to requests without one.
func (m *Model) lacksPassword(ctx context.Context, err error) bool {
	code := sandbox.CodeOf(err)
	return (code == sandbox.Unauthenticated || code == sandbox.Forbidden) && m.ownCredentials(ctx)
}

// registries adds to the model's client the credentials of the Cloudflare account's registry, which its API returns.
func (r *Resource) registries(ctx context.Context, m *Model) (_ *registry.Client, known bool, _ diag.Diagnostics) {
	c, known, diags := m.registries(ctx)
	if !known || diags.HasError() {
		return c, known, diags
	}
	account, err := r.account()
	if err != nil {
		return nil, false, append(diags, diagnose.Failed("Reaching Cloudflare's Registry Failed", err, nil)...)
	}
	if account == nil {
		return c, known, diags
	}
	names := []string{m.Name.ValueString()}
	if m.Source != nil {
		names = append(names, m.Source.Reference.ValueString())
	}
	for _, name := range names {
		if account.Has(name) {
			host, _, _ := strings.Cut(name, "/")
			c = c.With(host, account.Login)
		}
	}
	return c, known, diags
}

// account returns the registry of the provider's Cloudflare account, nil without an account.
func (r *Resource) account() (configured.Registry, error) {
	if r.provider == nil || r.provider.Registry == nil {
		return nil, nil
	}
	return r.provider.Registry()
}

// registries returns a client with the credentials of a model. Only the configuration has passwords. known is false if
// a credential is unknown.
func (m *Model) registries(ctx context.Context) (_ *registry.Client, known bool, _ diag.Diagnostics) {
	auths, diags := m.auths(ctx)
	if diags.HasError() || m.RegistryAuth.IsUnknown() {
		return nil, false, diags
	}
	given := make(map[string]registry.Credentials, len(auths))
	for _, a := range auths {
		for _, v := range []attr.Value{a.Address, a.Username, a.Password, a.CA} {
			if v.IsUnknown() {
				return nil, false, diags
			}
		}
		of := a.Address.ValueString() + "/any"
		if a.Address.IsNull() {
			if m.Name.IsUnknown() {
				return nil, false, diags
			}
			of = m.Name.ValueString()
		}
		host, err := registry.Host(of)
		if err != nil {
			diags.AddAttributeError(path.Root("registry_auth"), "Invalid Registry Address",
				a.Address.String()+" is not a registry address: write host or host:port.")
			return nil, false, diags
		}
		c := registry.Credentials{CA: a.CA.ValueString()}
		if c.CA != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(c.CA)) {
			diags.AddAttributeError(path.Root("registry_auth"), "Invalid CA Certificate",
				"The ca_certificate of registry "+host+" is not PEM. PEM starts with -----BEGIN CERTIFICATE-----.")
			return nil, false, diags
		}
		if !a.Password.IsNull() {
			c.Username, c.Password = a.Username.ValueString(), sandbox.Secret(a.Password.ValueString())
		}
		given[host] = c
	}
	return registry.New(given), true, diags
}
