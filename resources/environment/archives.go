package environment

import (
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/collection"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/given"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Archive is an element of archive.
type Archive struct {
	URL        types.String `tfsdk:"url"`
	SHA256     types.String `tfsdk:"sha256"`
	Target     types.String `tfsdk:"target"`
	Credential types.String `tfsdk:"credential_secret"`
	Header     types.String `tfsdk:"credential_header"`
}

func archiveAttribute() schema.ListNestedAttribute {
	required := func(description string) schema.StringAttribute {
		return schema.StringAttribute{MarkdownDescription: description, Required: true}
	}
	optional := func(description string) schema.StringAttribute {
		return schema.StringAttribute{
			MarkdownDescription: description,
			Optional:            true,
			Validators:          []validator.String{given.Text{}},
		}
	}
	return schema.ListNestedAttribute{
		Optional:   true,
		Validators: []validator.List{given.NoNulls{}},
		MarkdownDescription: fmt.Sprintf("Tar archives, plain or compressed with gzip or zstd, that each sandbox starts "+
			"with, at most %d, such as a repository in a bucket. The reconciler fetches them before `post_start`. Needs a "+
			"reconciler that was started with `--workspace-allow` for the host. Docker only. Changed in place, for new "+
			"generations. "+
			"Default: none.", sandbox.MaxArchives),
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"url": required("URL with `https`, or with `http` for a host that the reconciler allows without TLS, as in " +
				"`--workspace-allow http://bucket.internal`. Terraform's state and the ledger contain the signature of a " +
				"presigned URL; a credential in `secrets` is not in them."),
			"sha256": required("SHA-256 of the file, as 64 lower-case hexadecimal digits."),
			"target": required("Directory that it is unpacked into: `/workspace` or a path below. Files that are there are " +
				"replaced."),
			"credential_secret": optional("Name of the secret in `secrets` that is sent as the value of a header, such as " +
				"`Bearer` and a token. No sandbox gets that secret. Default: no credential."),
			"credential_header": optional("Header of the credential. Default: `" + sandbox.DefaultArchiveHeader + "`."),
		}},
	}
}

// checkArchives refuses at plan time what a service in this process never allows.
func (r *Resource) checkArchives(ctx context.Context, m *Model) (diags diag.Diagnostics) {
	if r.Provider == nil || !r.Provider.Embedded {
		return nil
	}
	for i, a := range collection.Elements[Archive](ctx, m.Archives, &diags) {
		if a.URL.IsUnknown() {
			continue
		}
		at := path.Root("archive").AtListIndex(i).AtName("url")
		diags.AddAttributeError(at, "Archive Without A Reconciler", fmt.Sprintf(
			"%s %s is on no host that is allowed: without a reconciler, no archive is fetched. Configure a reconciler that was "+
				"started with --workspace-allow for the host.", at, a.URL))
	}
	return diags
}

// expandArchives puts assumed in place of an unknown credential. It assumes that other unknown values are valid.
func (m *Model) expandArchives(ctx context.Context, assumed string,
	diags *diag.Diagnostics) (archives []sandbox.Archive) {
	for _, b := range collection.Elements[Archive](ctx, m.Archives, diags) {
		archives = append(archives, sandbox.Archive{
			URL:    orAssumed(b.URL, "https://unknown.invalid/unknown"),
			SHA256: orAssumed(b.SHA256, fmt.Sprintf("%064x", 0)), Target: orAssumed(b.Target, "/workspace"),
			Credential: orAssumed(b.Credential, assumed), Header: b.Header.ValueString(),
		})
	}
	return archives
}

// flattenArchives keeps the model's list if it matches the environment.
func (m *Model) flattenArchives(ctx context.Context, spec sandbox.EnvironmentSpec, diags *diag.Diagnostics) {
	now := sandbox.EnvironmentSpec{Archives: m.expandArchives(ctx, "", diags)}.WithDefaults().Archives
	if slices.Equal(now, spec.Archives) {
		return
	}
	var list []Archive
	for _, a := range spec.Archives {
		b := Archive{
			URL: types.StringValue(a.URL), SHA256: types.StringValue(a.SHA256), Target: types.StringValue(a.Target),
			Credential: value.String(a.Credential),
		}
		if a.Header != sandbox.DefaultArchiveHeader {
			b.Header = value.String(a.Header)
		}
		list = append(list, b)
	}
	m.Archives = collection.List(ctx, archiveAttribute(), list, diags)
}
