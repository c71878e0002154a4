package sandbox

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Workspace is the initial content of a directory in each sandbox of an environment. The service fetches it, so its
// credential stays outside of the sandbox.
type Workspace struct {
	Git *GitSource `json:"git,omitempty" doc:"Git repository that is fetched."`
	// Branch is the name of each lease's branch. It may contain the placeholders of branchPlaceholders.
	Branch string `json:"branch,omitempty" doc:"Branch of each lease. {agent}, {environment}, {lease} and {generation} are replaced. Default sandbox/{agent}/{generation}."`
	// PushPrefix allows pushes. It is the prefix of each pushed branch.
	PushPrefix string `json:"push_prefix,omitempty" doc:"Lets callers push a lease's branch to the repository, under this prefix and the branch's name, such as agents/. The service pushes, with the credential. Not with file://, which is only read. Default: no push."`
	// OnEnd says what happens to the commits when the lease ends.
	OnEnd WorkspaceEnd `json:"on_end,omitempty" enum:"bundle,push,discard" doc:"What becomes of the commits of a lease's branch when the lease ends: bundle keeps them and their diff for readers; push pushes them under push_prefix and keeps the diff, and keeps the bundle if the push fails; discard loses them. Default bundle."`
	Path  string       `json:"path,omitempty" doc:"Directory in the sandbox, below /workspace. It is replaced. Default: /workspace and the name of the repository."`
}

// WorkspaceEnd says what happens to the commits of a workspace when its lease ends.
type WorkspaceEnd string

// The ends.
const (
	// WorkspaceEndBundle keeps the commits as a bundle, and their diff.
	WorkspaceEndBundle WorkspaceEnd = "bundle"
	// WorkspaceEndPush pushes the branch under PushPrefix and keeps the diff. A push that fails keeps the bundle.
	WorkspaceEndPush WorkspaceEnd = "push"
	// WorkspaceEndDiscard loses the commits.
	WorkspaceEndDiscard WorkspaceEnd = "discard"
)

// MaxKeptWorkspace limits the bundle that is kept after the end of a lease, in bytes.
const MaxKeptWorkspace = 100 << 20

// GitSource is a Git repository that the service fetches.
type GitSource struct {
	URL string `json:"url" doc:"URL of the repository, with https or ssh; ssh also as git@host:path. Its host must be allowed by the service (--workspace-allow). With http, for a host that is allowed without TLS (--workspace-allow http://host). Or file:// and the absolute path of a repository on the service's machine, whose directory must be allowed (--mount-allow). Commits are read from it, and nothing is written to it."`
	// Ref is a branch, a tag, a full name below refs/, or a commit.
	Ref   string `json:"ref,omitempty" doc:"Branch, tag, full name below refs/, or commit of 40 digits. Default: the HEAD of the repository."`
	Depth int64  `json:"depth,omitempty" minimum:"0" doc:"Number of commits of history; 0 fetches all. Default 0."`
	// Submodules are fetched too, from hosts that the service allows.
	Submodules bool `json:"submodules,omitempty" doc:"Fetch submodules too, from hosts that the service allows. They get the credential only from the repository's own host. Default false."`
	// Credential names the secret. No sandbox gets it.
	Credential string `json:"credential_secret,omitempty" doc:"Name of the secret that is the password or token, or the private key for ssh. No sandbox gets this secret. Required with ssh, not with file. Default: none."`
	// Username is the user of the credential.
	Username string `json:"username,omitempty" doc:"User that goes with the credential. Default x-access-token. Not with ssh, whose URL names the user."`
	// KnownHosts are the accepted keys of the server.
	KnownHosts string `json:"known_hosts,omitempty" doc:"Lines with the keys that an ssh server may have, as in ~/.ssh/known_hosts. No other key is trusted. Default: those of the service (--workspace-known-hosts)."`
}

// Defaults and limits of workspaces.
const (
	DefaultWorkspaceBranch  = "sandbox/{agent}/{generation}"
	DefaultGitUsername      = "x-access-token"
	MaxGitDepth             = 1_000_000
	maxRefName              = 200
	maxKnownHosts           = 64 << 10
	defaultRepositoryFolder = "repository"
)

// branchPlaceholders are the placeholders that Branch may contain.
var branchPlaceholders = []string{"{agent}", "{environment}", "{lease}", "{generation}"}

// withDefaults returns the workspace with all defaults filled in.
func (w *Workspace) withDefaults() *Workspace {
	if w == nil {
		return nil
	}
	filled := *w
	orDefault(&filled.Branch, DefaultWorkspaceBranch)
	orDefault(&filled.OnEnd, WorkspaceEndBundle)
	if w.Git != nil {
		git := *w.Git
		if git.Credential != "" && !git.IsSSH() {
			orDefault(&git.Username, DefaultGitUsername)
		}
		filled.Git = &git
		orDefault(&filled.Path, path.Join(WorkspaceRoot, git.repositoryName()))
	}
	return &filled
}

// repositoryName returns the last part of the URL, like the directory name of git clone.
func (g GitSource) repositoryName() string {
	name := strings.TrimRight(g.URL, "/")
	if u, err := ParseGitURL(name); err == nil {
		name = u.Path
	}
	name = strings.TrimSuffix(path.Base(name), ".git")
	if !secretName().MatchString(name) { // it must be a plain file name
		return defaultRepositoryFolder
	}
	return name
}

// IsSSH reports whether the repository is fetched over ssh.
func (g GitSource) IsSSH() bool {
	u, err := ParseGitURL(g.URL)
	return err == nil && u.Scheme == "ssh"
}

// IsLocal reports whether the repository is on the service's machine.
func (g GitSource) IsLocal() bool {
	u, err := ParseGitURL(g.URL)
	return err == nil && u.Scheme == fileScheme
}

// BranchOf returns the branch of one lease's generation.
func (w Workspace) BranchOf(agent, environment, lease string, generation int64) string {
	return strings.NewReplacer("{agent}", RefSlug(agent), "{environment}", RefSlug(environment), "{lease}", RefSlug(lease),
		"{generation}", strconv.FormatInt(generation, 10)).Replace(w.Branch)
}

// RefSlug returns a text as one component of a ref's name. It replaces invalid characters by '-'.
func RefSlug(text string) string {
	slug := strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '.' || r == '_' || r == '-' || isAlphanumeric(byte(r))) {
			return r
		}
		return '-'
	}, text)
	for strings.Contains(slug, "..") {
		slug = strings.ReplaceAll(slug, "..", ".")
	}
	slug = strings.Trim(slug, ".-")
	if lock, isLock := strings.CutSuffix(slug, ".lock"); isLock {
		slug = lock + "-lock"
	}
	if slug == "" {
		return "none"
	}
	return slug
}

// refProblem returns the problem of a ref's name, "" if it has none. The rules are those of git check-ref-format.
func refProblem(name string) string {
	bad := func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`~^:?*[\`, r) }
	switch {
	case name == "" || len(name) > maxRefName:
		return fmt.Sprintf("must have 1 to %d characters", maxRefName)
	case strings.ContainsFunc(name, bad), strings.Contains(name, ".."), strings.Contains(name, "@{"), name == "@",
		strings.HasPrefix(name, "-"), strings.HasSuffix(name, "."):
		return "must be a name that git accepts: without space, control characters, .., @{ and any of ~^:?*[\\"
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return "must have parts that are not empty, do not begin with '.' and do not end with .lock"
		}
	}
	return ""
}

// IsWorkspaceCredential reports whether a secret is the credential of the workspace.
func (s EnvironmentSpec) IsWorkspaceCredential(secret string) bool {
	return secret != "" && s.Workspace != nil && s.Workspace.Git != nil && s.Workspace.Git.Credential == secret
}

// workspaceFields returns the problems of the workspace.
func (s EnvironmentSpec) workspaceFields() (f []Field) {
	w := s.Workspace
	if w == nil {
		return nil
	}
	bad := func(name, problem string, args ...any) {
		f = append(f, Field{"workspace." + name, fmt.Sprintf(problem, args...)})
	}
	if w.Git == nil {
		bad("git", "must be set: it is the only source of a workspace")
	} else {
		f = append(f, w.Git.fields()...)
		if c := w.Git.Credential; c != "" && !slices.Contains(s.Secrets, c) {
			bad("git.credential_secret", "must be the name of one of the environment's secrets, not %q", c)
		}
	}
	if problem := refProblem(w.BranchOf("agent", "environment", "lease", 1)); problem != "" {
		bad("branch", "%s", problem)
	} else if w.Branch == "HEAD" {
		bad("branch", "must not be HEAD, which git accepts as the name of no branch")
	} else if rest := removeAll(w.Branch, branchPlaceholders); strings.ContainsAny(rest, "{}") {
		bad("branch", "may contain only the placeholders %s", strings.Join(branchPlaceholders, ", "))
	}
	if w.PushPrefix != "" {
		if w.Git != nil && w.Git.IsLocal() {
			bad("push_prefix", "must not be set with file://: the repository is only read. Read the commits as a bundle "+
				"(sandbox workspace bundle)")
		} else if problem := refProblem(w.PushPrefix + w.BranchOf("agent", "environment", "lease", 1)); problem != "" {
			bad("push_prefix", "and the branch: %s", problem)
		}
	}
	switch w.OnEnd {
	case WorkspaceEndBundle, WorkspaceEndDiscard:
	case WorkspaceEndPush:
		if w.PushPrefix == "" {
			bad("on_end", "must not be push without push_prefix")
		}
	default:
		bad("on_end", "must be bundle, push or discard, not %q", w.OnEnd)
	}
	if clean, err := CleanPath(w.Path); err != nil || clean != w.Path || !strings.HasPrefix(w.Path, WorkspaceRoot+"/") ||
		strings.ContainsFunc(w.Path, isControl) {
		bad("path", "must be an absolute path below /workspace, such as /workspace/repository, not %q", w.Path)
	} else if Within(w.Path, ConfigFile) {
		bad("path", takesConfigFile)
	}
	for _, m := range s.Mounts {
		if Within(m.Target, w.Path) || Within(w.Path, m.Target) {
			bad("path", "overlaps the mount of %s", m.Target)
		}
	}
	for _, c := range s.Copies {
		if Within(c.Target, w.Path) {
			bad("path", "would replace the copy in %s", c.Target)
		}
	}
	return f
}

func removeAll(text string, parts []string) string {
	for _, p := range parts {
		text = strings.ReplaceAll(text, p, "")
	}
	return text
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// fields returns the problems of a repository.
func (g GitSource) fields() (f []Field) {
	bad := func(name, problem string, args ...any) {
		f = append(f, Field{"workspace.git." + name, fmt.Sprintf(problem, args...)})
	}
	if problem := GitURLProblem(g.URL); problem != "" {
		bad("url", "%s", problem)
	}
	if g.Ref != "" {
		if problem := refProblem(g.Ref); problem != "" {
			bad("ref", "%s", problem)
		}
	}
	if g.Depth < 0 || g.Depth > MaxGitDepth {
		bad("depth", "must be between 0 (all history) and %d", MaxGitDepth)
	}
	if g.IsLocal() && g.Credential != "" {
		bad("credential_secret", "must not be set with file://: there is no server")
	}
	if g.IsSSH() {
		if g.Credential == "" {
			bad("credential_secret", "must be set to the secret with the private key")
		}
		if g.Username != "" {
			bad("username", "must not be set with ssh: the URL names the user")
		}
	} else if g.KnownHosts != "" {
		bad("known_hosts", "must not be set without ssh")
	}
	if len(g.KnownHosts) > maxKnownHosts || strings.ContainsFunc(g.KnownHosts,
		func(r rune) bool { return isControl(r) && r != '\n' && r != '\r' && r != '\t' }) {
		bad("known_hosts", "must be at most %d bytes of text", maxKnownHosts)
	}
	if g.Username != "" && g.Credential == "" && !g.IsSSH() {
		bad("username", "must not be set without credential_secret")
	}
	if strings.ContainsFunc(g.Username, isControl) || strings.Contains(g.Username, ":") || len(g.Username) > 255 {
		bad("username", "must be at most 255 characters without ':' and control characters")
	}
	return f
}

// WorkspaceReady is the data of EventWorkspaceReady.
type WorkspaceReady struct {
	Path   string `json:"path"`
	URL    string `json:"url"`
	Ref    string `json:"ref,omitempty"`
	Commit string `json:"commit"`
	Branch string `json:"branch"`
	Files  int64  `json:"files"`
	// SkippedLinks counts symbolic links that lead out of the workspace. They are not written.
	SkippedLinks int64 `json:"skipped_links,omitempty"`
	// Submodules counts the submodules that were fetched.
	Submodules int64 `json:"submodules,omitempty"`
}

// WorkspaceCollected is the data of EventWorkspaceCollected. A form of zero bytes is not kept.
type WorkspaceCollected struct {
	Branch string `json:"branch"`
	Commit string `json:"commit"`
	// Commits counts the commits of the lease. Without commits, nothing is kept.
	Commits     int64 `json:"commits"`
	BundleBytes int64 `json:"bundle_bytes,omitempty"`
	DiffBytes   int64 `json:"diff_bytes,omitempty"`
	// Pushed is the branch of the repository that the commits were pushed to.
	Pushed string `json:"pushed,omitempty"`
	// Problem says why the branch was not pushed, or has no diff.
	Problem string `json:"problem,omitempty"`
}

// WorkspaceLost is the data of EventWorkspaceLost.
type WorkspaceLost struct {
	Branch string `json:"branch"`
	Reason string `json:"reason"`
}

// WorkspaceForm is the form in which a workspace is collected.
type WorkspaceForm string

// The forms.
const (
	// WorkspaceBundle is a Git bundle with the commits of the branch.
	WorkspaceBundle WorkspaceForm = "bundle"
	// WorkspaceDiff is a unified diff of the branch.
	WorkspaceDiff WorkspaceForm = "diff"
)

// Validate checks a form. Errors: Invalid.
func (f WorkspaceForm) Validate() error {
	if f != WorkspaceBundle && f != WorkspaceDiff {
		return InvalidFields("workspace", []Field{{"form", fmt.Sprintf("must be bundle or diff, not %q", f)}})
	}
	return nil
}

// WorkspacePushed says where the branch of a workspace was pushed. It is also the data of EventWorkspacePushed.
type WorkspacePushed struct {
	URL    string `json:"url"`
	Branch string `json:"branch" doc:"Branch of the repository."`
	Commit string `json:"commit"`
}

// scpForm is the form user@host:path, which Git reads as an ssh URL.
var scpForm = regexp.MustCompile(`^([^/@:]+)@([^/@:\[\]]+):([^/].*|/.+)$`)

// ParseGitURL parses the URL of a repository, including the ssh form user@host:path. Its path may be relative to the
// user's home directory.
func ParseGitURL(text string) (*url.URL, error) {
	if m := scpForm.FindStringSubmatch(text); m != nil && !strings.Contains(text, "://") {
		return &url.URL{Scheme: "ssh", User: url.User(m[1]), Host: m[2], Path: m[3]}, nil
	}
	return url.Parse(text)
}

// GitURLProblem returns the problem of a repository's URL, "" if it has none.
func GitURLProblem(text string) string {
	u, err := ParseGitURL(text)
	if err != nil || len(text) > 2048 ||
		strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f }) ||
		strings.ContainsAny(text, `"'\`) {
		return "must be a URL such as https://git.example.com/team/repository.git or git@git.example.com:team/repository.git"
	}
	if u.Scheme == fileScheme {
		return fileURLProblem(u)
	}
	isSSH := u.Scheme == "ssh"
	_, hasPassword := u.User.Password()
	switch {
	case !isSSH && u.Scheme != "https" && u.Scheme != "http":
		return fmt.Sprintf("must begin with https://, ssh:// or file://, not %q", u.Scheme)
	case !isSSH && u.User != nil:
		return "must not contain a user or a password: use credential_secret"
	case isSSH && (u.User.Username() == "" || strings.HasPrefix(u.User.Username(), "-")):
		return "must name the user, such as ssh://git@git.example.com/team/repository.git"
	case hasPassword:
		return "must not contain a password: use credential_secret"
	case u.Hostname() == "" || strings.HasPrefix(u.Host, "-") || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" ||
		u.Opaque != "":
		return "must have a host and a path, and neither a query nor a fragment"
	case strings.Trim(u.Path, "/") == "" || strings.HasPrefix(u.Path, "-") ||
		strings.ContainsFunc(u.Path, func(r rune) bool { return isControl(r) || r == '\'' || r == '\\' }) ||
		slices.Contains(strings.Split(u.Path, "/"), ".."):
		return "must have the path of a repository, without \"..\", quotes and control characters"
	}
	return ""
}

// fileScheme is the URL scheme of a repository on the service's machine.
const fileScheme = "file"

// fileURLProblem is GitURLProblem for a repository on the service's machine.
func fileURLProblem(u *url.URL) string {
	switch {
	case u.Host != "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.Opaque != "":
		return "must have nothing but a path after file://, such as file:///srv/git/repository"
	case u.Path == "/" || strings.ContainsFunc(u.Path, isControl):
		return "must have the path of a repository, without control characters"
	default:
		return sourceProblem(u.Path)
	}
}
