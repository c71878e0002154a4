package gitmirror

import (
	"bytes"
	"context"
	"net/url"
	"path"
	"strings"

	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Limits of submodules.
const (
	maxModulesBytes    = 64 << 10
	maxSubmodules      = 64
	maxSubmoduleLevels = 5
)

// addSubmodules fetches the submodules of a checkout, each at the commit that the tree names.
func (s *Store) addSubmodules(ctx context.Context, src Source, c, total *Checkout) error {
	wanted := make(map[string]plumbing.Hash)
	var file *entry
	for i, e := range c.entries {
		switch {
		case e.mode == filemode.Submodule:
			wanted[e.path] = e.hash
		case e.path == ".gitmodules":
			file = &c.entries[i]
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	if file == nil {
		return sandbox.Errorf(sandbox.Failed, "its tree has submodules and no .gitmodules")
	}
	content, err := readBlob(c.objects, file.hash, maxModulesBytes)
	if err != nil {
		return sandbox.Errorf(sandbox.Failed, ".gitmodules cannot be read: %w", err)
	}
	modules := config.NewModules()
	if err := modules.Unmarshal(bytes.TrimSpace(content)); err != nil {
		return sandbox.Errorf(sandbox.Failed, ".gitmodules cannot be read: %w", err)
	}
	byPath := make(map[string]*config.Submodule)
	for _, m := range modules.Submodules {
		byPath[m.Path] = m
	}
	for _, e := range c.entries {
		if e.mode != filemode.Submodule {
			continue
		}
		m := byPath[e.path]
		if m == nil {
			return sandbox.Errorf(sandbox.Failed, "submodule %q is not in .gitmodules", e.path)
		}
		if err := s.addSubmodule(ctx, src, c, total, m, e); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) addSubmodule(ctx context.Context, src Source, c, total *Checkout, m *config.Submodule, e entry) error {
	if total.Submodules++; total.Submodules > maxSubmodules {
		return tooLarge("the repository", maxSubmodules, "submodules")
	}
	if problem := submoduleNameProblem(m.Name); problem != "" {
		return sandbox.Errorf(sandbox.Failed, "submodule %q has the name %q, %s", e.path, m.Name, problem)
	}
	own, err := submoduleSource(src, m.URL)
	if err != nil {
		return sandbox.Errorf(sandbox.Failed, "submodule %q: %w", e.path, err)
	}
	if own.level > maxSubmoduleLevels {
		return tooLarge("the repository", maxSubmoduleLevels, "submodules within each other")
	}
	own.Ref = e.hash.String()
	sub, err := s.checkout(ctx, own, total)
	if err != nil {
		return sandbox.Errorf(sandbox.CodeOf(err), "submodule %q: %w", e.path, err).WithReason(sandbox.ReasonOf(err))
	}
	if sub.Commit != own.Ref {
		sub.Close()
		return sandbox.Errorf(sandbox.Failed, "submodule %q: %s is not a commit", e.path, own.Ref)
	}
	c.subs = append(c.subs, submodule{at: e.path, name: m.Name, Checkout: sub})
	return nil
}

// submoduleNameProblem returns why git refuses the name of a submodule. Names become parts of a configuration.
func submoduleNameProblem(name string) string {
	switch {
	case name == "" || len(name) > 500:
		return "which must have 1 to 500 characters"
	case strings.ContainsFunc(name, func(r rune) bool { return isControl(r) || strings.ContainsRune(`"'\[]`, r) }):
		return "which has characters that are not allowed"
	case strings.HasPrefix(name, "-"), strings.HasPrefix(name, "/"):
		return "which looks like an option or a path"
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." || isDotGit(part) {
			return "which leads to another directory"
		}
	}
	return ""
}

// submoduleSource returns what to fetch for a submodule's URL, which may be relative to its repository's.
func submoduleSource(of Source, text string) (Source, error) {
	parent, err := sandbox.ParseGitURL(of.URL)
	if err != nil {
		return Source{}, err
	}
	if relative := strings.HasPrefix(text, "./") || strings.HasPrefix(text, "../"); relative && parent.Scheme == "ssh" {
		return sshSubmodule(of, parent, text)
	}
	if strings.HasPrefix(text, "./") || strings.HasPrefix(text, "../") {
		joined := *parent
		joined.Path = path.Join("/", parent.Path, text)
		joined.RawPath = ""
		text = joined.String()
	}
	u, err := url.Parse(text)
	switch {
	case err != nil, strings.HasPrefix(text, "-"), u.Scheme != "https" && u.Scheme != "http", u.User != nil, u.Host == "",
		u.RawQuery != "", u.Fragment != "", len(text) > 2048,
		strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"'\`, r) }):
		return Source{}, sandbox.Errorf(sandbox.Failed, "its URL %q is not allowed: only https URLs without a user are", text)
	case parent.Scheme == "https" && u.Scheme != "https":
		return Source{}, sandbox.Errorf(sandbox.Failed, "its URL %q is not allowed: its repository uses https", text)
	}
	own := Source{URL: u.String(), Submodules: true, level: of.level + 1, trusted: of.trusted}
	if own.trusted == "" {
		own.trusted = origin(parent)
	}
	own.Username, own.Secret = of.Username, of.Secret
	if origin(u) != own.trusted {
		own.withheld = true
	}
	return own, nil
}

// sshSubmodule is submoduleSource for a URL that is relative to a repository behind ssh: it is on the same server.
func sshSubmodule(of Source, parent *url.URL, text string) (Source, error) {
	joined := *parent
	joined.Path = path.Join(parent.Path, text)
	own := of
	own.URL = joined.String()
	if !strings.HasPrefix(joined.Path, "/") {
		own.URL = joined.User.Username() + "@" + joined.Host + ":" + joined.Path
	}
	if problem := sandbox.GitURLProblem(own.URL); problem != "" {
		return Source{}, sandbox.Errorf(sandbox.Failed, "its URL %q is not allowed: it %s", text, problem)
	}
	own.Depth, own.Submodules, own.level, own.trusted = 0, true, of.level+1, origin(parent)
	return own, nil
}

// origin returns the scheme, host and port that a credential is for.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = defaultPorts[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}
