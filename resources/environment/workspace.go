package environment

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/sandbox-lease/terraform-provider-sandbox/provider/given"
	"github.com/sandbox-lease/terraform-provider-sandbox/provider/value"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Workspace is the workspace attribute.
type Workspace struct {
	Git    *GitSource   `tfsdk:"git"`
	Branch types.String `tfsdk:"branch"`
	Path   types.String `tfsdk:"path"`

	PushPrefix types.String `tfsdk:"push_prefix"`
	OnEnd      types.String `tfsdk:"on_end"`
}

// GitSource is the git attribute of a workspace.
type GitSource struct {
	URL        types.String `tfsdk:"url"`
	Ref        types.String `tfsdk:"ref"`
	Depth      types.Int64  `tfsdk:"depth"`
	Submodules types.Bool   `tfsdk:"submodules"`
	Credential types.String `tfsdk:"credential_secret"`
	Username   types.String `tfsdk:"username"`
	KnownHosts types.String `tfsdk:"known_hosts"`
}

func workspaceAttribute() schema.SingleNestedAttribute {
	text := func(description string) schema.StringAttribute {
		return schema.StringAttribute{
			MarkdownDescription: description,
			Optional:            true,
			Validators:          []validator.String{given.Text{}},
		}
	}
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "Git repository that each sandbox starts with. The reconciler fetches it before `post_start`. " +
			"Its credential stays outside of the sandbox. Needs a reconciler that was started with `--workspace-allow` for " +
			"the host, or with `--mount-allow` for a directory of its machine; see the [guide on " +
			"workspaces](../guides/workspaces.md). Docker only. Changed in place, for new generations. Default: none.",
		Attributes: map[string]schema.Attribute{
			"git": schema.SingleNestedAttribute{
				MarkdownDescription: "The repository.",
				Required:            true,
				Attributes: map[string]schema.Attribute{
					"url": schema.StringAttribute{
						MarkdownDescription: "URL with `https`, such as `https://git.example.com/team/app.git`, with `ssh`, such as " +
							"`git@git.example.com:team/app.git`, or with `file` for a repository or worktree on the reconciler's " +
							"machine, such as `file:///srv/git/app`. From that, only commits are read, and nothing is written to it. " +
							"With `http`, for a host that the reconciler allows without TLS, as in `--workspace-allow " +
							"http://git.internal:3000`.",
						Required: true,
					},
					"ref": text("Branch, tag, full name below `refs/`, or commit of 40 digits. Default: the repository's `HEAD`."),
					"depth": schema.Int64Attribute{
						MarkdownDescription: fmt.Sprintf("Number of commits of history, 0 to %d; `0`: all. Default: `0`.",
							sandbox.MaxGitDepth),
						Optional:   true,
						Validators: []validator.Int64{int64validator.Between(0, sandbox.MaxGitDepth)},
					},
					"submodules": schema.BoolAttribute{
						MarkdownDescription: "Fetch submodules too, from hosts that the reconciler allows. Only those on the " +
							"repository's own host get the credential. Default: `false`.",
						Optional: true,
					},
					"credential_secret": text("Name of the secret in `secrets` that is the password or token, or the private key " +
						"for `ssh`. No sandbox gets that secret. Required with `ssh`, not with `file`. Default: no credential."),
					"username": text("User that goes with the credential. Default: `" + sandbox.DefaultGitUsername + "`. Not with " +
						"`ssh`, whose URL names the user."),
					"known_hosts": text("Lines with the keys that an `ssh` server may have, as in `~/.ssh/known_hosts`. No other " +
						"key is trusted. Default: those of the reconciler (`--workspace-known-hosts`)."),
				},
			},
			"branch": text("Branch of each lease. `{agent}`, `{environment}`, `{lease}` and `{generation}` are replaced. " +
				"Default: `" + sandbox.DefaultWorkspaceBranch + "`."),
			"push_prefix": text("Lets callers push a lease's branch to the repository, under this prefix and the branch's " +
				"name, such as `agents/`. The reconciler pushes, with the credential. Not with a `file` URL. Default: no push."),
			"on_end": schema.StringAttribute{
				MarkdownDescription: "What becomes of the commits of a lease's branch when the lease ends. `bundle`: they are " +
					"kept as a bundle, with their diff, and can be read after the end. `push`: they are pushed under `push_prefix`, " +
					"and the diff is kept; if the push fails, the bundle is kept too. `discard`: they are lost. The sandbox is " +
					"frozen at the end and removed at most 30 s later. Default: `bundle`.",
				Optional: true,
				Validators: []validator.String{stringvalidator.OneOf(string(sandbox.WorkspaceEndBundle),
					string(sandbox.WorkspaceEndPush), string(sandbox.WorkspaceEndDiscard))},
			},
			"path": text("Directory in the sandbox, below `/workspace`. It is replaced. Default: `/workspace` and the name of " +
				"the repository."),
		},
	}
}

// checkWorkspace refuses at plan time what a service in this process never allows.
func (r *Resource) checkWorkspace(m *Model) (diags diag.Diagnostics) {
	if r.Provider == nil || !r.Provider.Embedded || m.Workspace == nil || m.Workspace.Git == nil ||
		m.Workspace.Git.URL.IsUnknown() {
		return nil
	}
	git := sandbox.GitSource{URL: m.Workspace.Git.URL.ValueString()}
	where, flag := "on no host that is allowed", "--workspace-allow for the host"
	if git.IsLocal() {
		where, flag = "in no directory that is allowed", "--mount-allow for the directory"
	}
	at := path.Root("workspace").AtName("git").AtName("url")
	diags.AddAttributeError(at, "Workspace Without A Reconciler", fmt.Sprintf(
		"workspace.git.url %s is %s: without a reconciler, no repository is fetched. Configure a reconciler that was "+
			"started with %s.", m.Workspace.Git.URL, where, flag))
	return diags
}

// unknown reports whether the whole workspace may be unknown (spread.Plan).
func (w *Workspace) unknown() bool {
	return w.Branch.IsUnknown() && w.Path.IsUnknown() && w.PushPrefix.IsUnknown() && w.OnEnd.IsUnknown() &&
		(w.Git == nil || w.Git.URL.IsUnknown())
}

// expand returns nil while all of it is unknown. It puts assumed in place of an unknown credential, and assumes that
// other unknown values are valid.
func (w *Workspace) expand(assumed string) *sandbox.Workspace {
	if w == nil || w.unknown() {
		return nil
	}
	workspace := &sandbox.Workspace{
		Git: w.Git.expand(), Branch: w.Branch.ValueString(), PushPrefix: orAssumed(w.PushPrefix, "unknown/"),
		OnEnd: sandbox.WorkspaceEnd(w.OnEnd.ValueString()), Path: orAssumed(w.Path, "/workspace/unknown-repository"),
	}
	if git := workspace.Git; git != nil && git.IsLocal() { // it has no server to push to or to log in to
		workspace.PushPrefix = w.PushPrefix.ValueString()
	} else if git != nil && w.Git.Credential.IsUnknown() {
		git.Credential = assumed
	}
	return workspace
}

// expand leaves an unknown credential out. Known hosts of an unknown URL tell that it is one of ssh.
func (g *GitSource) expand() *sandbox.GitSource {
	if g == nil {
		return nil
	}
	url := "https://unknown.invalid/unknown-repository"
	if g.KnownHosts.ValueString() != "" {
		url = "ssh://git@unknown.invalid/unknown-repository"
	}
	return &sandbox.GitSource{
		URL: orAssumed(g.URL, url), Ref: g.Ref.ValueString(), Depth: g.Depth.ValueInt64(),
		Submodules: g.Submodules.ValueBool(), Credential: g.Credential.ValueString(), Username: g.Username.ValueString(),
		KnownHosts: g.KnownHosts.ValueString(),
	}
}

// flattenWorkspace keeps the model's workspace if it matches the environment.
func (m *Model) flattenWorkspace(spec sandbox.EnvironmentSpec) {
	is := spec.WithDefaults().Workspace
	now := sandbox.EnvironmentSpec{Workspace: m.Workspace.expand("")}.WithDefaults().Workspace
	if reflect.DeepEqual(now, is) {
		return
	}
	m.Workspace = nil
	if is == nil || is.Git == nil {
		return
	}
	usual := sandbox.EnvironmentSpec{Workspace: &sandbox.Workspace{
		Git: &sandbox.GitSource{URL: is.Git.URL, Credential: is.Git.Credential}}}.WithDefaults().Workspace
	unless := func(text, usual string) types.String {
		if text == usual {
			return types.StringNull()
		}
		return types.StringValue(text)
	}
	g := &GitSource{
		URL: types.StringValue(is.Git.URL), Ref: value.String(is.Git.Ref), Depth: unlessInt64(is.Git.Depth, 0),
		Credential: value.String(is.Git.Credential), Username: unless(is.Git.Username, usual.Git.Username),
		KnownHosts: value.String(is.Git.KnownHosts),
	}
	if is.Git.Submodules {
		g.Submodules = types.BoolValue(true)
	}
	m.Workspace = &Workspace{Git: g, Branch: unless(is.Branch, usual.Branch), Path: unless(is.Path, usual.Path),
		PushPrefix: value.String(is.PushPrefix), OnEnd: unless(string(is.OnEnd), string(usual.OnEnd))}
}

// locateWorkspace finds a field below workspace, such as git.url.
func locateWorkspace(rest string) path.Path {
	at := path.Root("workspace")
	for name := range strings.SplitSeq(rest, ".") {
		if name != "" {
			at = at.AtName(name)
		}
	}
	return at
}
