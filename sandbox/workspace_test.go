package sandbox_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// workspaceProblems returns the fields that are wrong with a workspace.
func workspaceProblems(change func(s *sandbox.EnvironmentSpec)) (names []string) {
	s := sandbox.EnvironmentSpec{Image: "player", Secrets: []string{"token"}, Workspace: &sandbox.Workspace{
		Git: &sandbox.GitSource{URL: "https://git.example.com/team/app.git", Credential: "token"}}}
	if change != nil {
		change(&s)
	}
	var e *sandbox.Error
	if errors.As(s.WithDefaults().Validate(), &e) {
		for _, f := range e.Fields {
			names = append(names, f.Name)
		}
	}
	return names
}

func TestWorkspacesAreChecked(t *testing.T) {
	t.Parallel()
	if got := workspaceProblems(nil); got != nil {
		t.Errorf("a sound workspace has problems with %q", got)
	}
	for field, values := range map[string][]string{
		"git.url": {
			"", "git.example.com/app", "ssh://git.example.com/app", "/srv/app",
			"ssh://git:p@git.example.com/app", "ssh://-oProxyCommand=x@git.example.com/app", "git@git.example.com:../app",
			"-x@git.example.com:app", "git@-x:app", "git@git.example.com:-x", "ssh://git@git.example.com/a%27b",
			"git@git.example.com:a'b", "git@git.example.com:", "ssh://git@git.example.com/a%0ab",
			"https://u:p@git.example.com/app", "https://git.example.com", "https://git.example.com/", "ext::sh",
			"https://git.example.com/app?x=1", "https://git.example.com/app#x", "https://git.example.com/a b",
			"https://git.example.com/a\n[core]", `https://git.example.com/a"b`, "https://git.example.com/../x",
			"https:///app", "https://git.example.com/" + strings.Repeat("x", 3000),
		},
		"git.ref": {
			"..", "a..b", "-x", "a b", "a\x00", "a~1", "a^{tree}", "a:b", "a?", "a*", "a[", `a\b`, "/a", "a/", "a//b", ".a", "a/.b",
			"a.lock", "a.lock/b", "a.", "@", "a@{1}", strings.Repeat("x", 300),
		},
		"git.credential_secret": {"other"},
		"git.username":          {"a:b", "a\nb", strings.Repeat("x", 300)},
		"branch":                {"{agent}/..", "{nobody}", "{agent", "-{agent}", "{agent}.lock", "a b", "HEAD"},
		"on_end":                {"keep", "push"}, // without a prefix
		"push_prefix":           {"../", "a b/", "/", "-", ".x/"},
		"path": {
			"/workspace", "/data/app", "/etc", "app", "/workspace/../etc", "/workspace/app/", "/workspace/a\nb", "/",
			"/workspace/config.json", "/workspace/config.json/app",
		},
	} {
		for _, v := range values {
			got := workspaceProblems(func(s *sandbox.EnvironmentSpec) {
				w := s.Workspace
				for name, at := range map[string]*string{"git.url": &w.Git.URL, "git.ref": &w.Git.Ref, "branch": &w.Branch,
					"git.credential_secret": &w.Git.Credential, "git.username": &w.Git.Username, "path": &w.Path,
					"push_prefix": &w.PushPrefix, "on_end": (*string)(&w.OnEnd)} {
					if name == field {
						*at = v
					}
				}
			})
			if len(got) != 1 || got[0] != "workspace."+field {
				t.Errorf("%s = %.50q has problems with %q", field, v, got)
			}
		}
	}
	for name, change := range map[string]func(s *sandbox.EnvironmentSpec){
		"workspace.git":       func(s *sandbox.EnvironmentSpec) { s.Workspace = &sandbox.Workspace{Path: "/workspace/a"} },
		"workspace.git.depth": func(s *sandbox.EnvironmentSpec) { s.Workspace.Git.Depth = -1 },
		"workspace.path": func(s *sandbox.EnvironmentSpec) {
			s.Mounts = []sandbox.Mount{{Source: "/srv", Target: "/workspace/app/maps"}}
		},
	} {
		if got := workspaceProblems(change); len(got) != 1 || got[0] != name {
			t.Errorf("%s has problems with %q", name, got)
		}
	}
	got := workspaceProblems(func(s *sandbox.EnvironmentSpec) { s.Backend = sandbox.Cloudflare })
	if len(got) != 1 || got[0] != "workspace" {
		t.Errorf("on Cloudflare there are problems with %q", got)
	}
}

func TestBranchesOfLeasesAreNamesThatGitAccepts(t *testing.T) {
	t.Parallel()
	w := sandbox.Workspace{Branch: "x/{agent}/{environment}/{lease}/{generation}"}
	for agent, want := range map[string]string{
		"did:plc:ann": "did-plc-ann", "did:web:a..b": "did-web-a.b", "did:web:a.lock": "did-web-a-lock", "..": "none",
		"did:web:é~^?*[": "did-web", ".hidden.": "hidden",
	} {
		if got := w.BranchOf(agent, "catan-7", agent+"::catan-7", 3); !strings.HasPrefix(got, "x/"+want+"/catan-7/") ||
			!strings.HasSuffix(got, "/3") || strings.Contains(got, "..") {
			t.Errorf("the branch of %q is %q", agent, got)
		}
	}
}

func TestTheCredentialOfAWorkspaceIsInsideOfNothing(t *testing.T) {
	t.Parallel()
	s := sandbox.EnvironmentSpec{Workspace: &sandbox.Workspace{Git: &sandbox.GitSource{Credential: "token"}}}
	if !s.IsCredential("token") || s.IsCredential("other") || s.IsCredential("") {
		t.Error("its secret is delivered to sandboxes")
	}
	if s.HasCredentials() || len(s.Credentials()) != 0 {
		t.Error("its secret is given to the gateway")
	}
}

func TestRepositoriesBehindSSH(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"git@git.example.com:team/app.git": "/workspace/app", "ssh://git@git.example.com:2222/team/app": "/workspace/app",
		"git@git.example.com:app.git": "/workspace/app", "ssh://git@git.example.com/~ann/app": "/workspace/app",
	} {
		var path, username string
		got := workspaceProblems(func(s *sandbox.EnvironmentSpec) {
			s.Workspace.Path, s.Workspace.Git.URL, s.Workspace.Git.Username = "", url, ""
			w := s.WithDefaults().Workspace
			path, username = w.Path, w.Git.Username
			s.Workspace.Path = path
		})
		if len(got) > 0 || path != want || username != "" {
			t.Errorf("%s has problems with %q, is in %s, with the user %q", url, got, path, username)
		}
	}
	for name, change := range map[string]func(g *sandbox.GitSource){
		"credential_secret": func(g *sandbox.GitSource) { g.Credential = "" },
		"username":          func(g *sandbox.GitSource) { g.Username = "ann" },
		"known_hosts":       func(g *sandbox.GitSource) { g.URL = "https://git.example.com/app"; g.KnownHosts = "a" },
	} {
		got := workspaceProblems(func(s *sandbox.EnvironmentSpec) {
			s.Workspace.Git.URL, s.Workspace.Git.Username = "git@git.example.com:app", ""
			change(s.Workspace.Git)
		})
		if len(got) != 1 || got[0] != "workspace.git."+name {
			t.Errorf("without a sound %s, the problems are %q", name, got)
		}
	}
}

func TestARepositoryOfTheServicesMachineHasNeitherCredentialNorPush(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(w *sandbox.Workspace){
		"":                                func(*sandbox.Workspace) {},
		"workspace.git.credential_secret": func(w *sandbox.Workspace) { w.Git.Credential = "token" },
		"workspace.git.username":          func(w *sandbox.Workspace) { w.Git.Username = "ann" },
		"workspace.git.known_hosts":       func(w *sandbox.Workspace) { w.Git.KnownHosts = "a" },
		"workspace.push_prefix":           func(w *sandbox.Workspace) { w.PushPrefix = "agents/" },
		"workspace.on_end":                func(w *sandbox.Workspace) { w.OnEnd = sandbox.WorkspaceEndPush },
	} {
		got := workspaceProblems(func(s *sandbox.EnvironmentSpec) {
			s.Workspace.Git = &sandbox.GitSource{URL: "file:///srv/git/my%20app", Ref: "main", Depth: 3}
			s.Workspace.Path = "/workspace/app"
			change(s.Workspace)
		})
		if strings.Join(got, " ") != field {
			t.Errorf("there are problems with %q, want %q", got, field)
		}
	}
	for _, url := range []string{
		"file:srv", "file:", "file://", "file:///", "file://localhost/srv/app", "file://u@/srv/app", "file:///srv/../etc",
		"file:///srv/%2e%2e/etc", "file:///srv/app/", "file:///srv//app", "file:///srv/app?x=1", "file:///srv/app#x",
		"file:///srv/a%0ab", "file:///srv/a%00b",
	} {
		got := workspaceProblems(func(s *sandbox.EnvironmentSpec) { s.Workspace.Git = &sandbox.GitSource{URL: url} })
		if strings.Join(got, " ") != "workspace.git.url" {
			t.Errorf("%s has problems with %q", url, got)
		}
	}
	w := sandbox.EnvironmentSpec{Workspace: &sandbox.Workspace{Git: &sandbox.GitSource{URL: "file:///srv/git/app"}}}
	if got := w.WithDefaults().Workspace.Path; got != "/workspace/app" {
		t.Errorf("its default path is %s", got)
	}
}
