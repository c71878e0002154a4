package gitmirror

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// found is a resolved ref of a repository.
type found struct {
	// want is the object that the server offers, perhaps a tag. branch is the name of the branch, "" if the ref is not
	// a branch.
	want   plumbing.Hash
	branch string
}

// repository is where a source is fetched from.
type repository interface {
	// resolve finds the ref of the source.
	resolve() (found, error)
	// fetch adds the objects of a tip that a mirror lacks. It returns the name of the pack that has the tip and nothing
	// else, "" if none does.
	fetch(ctx context.Context, m *mirror, want plumbing.Hash, l Limits) (pack string, err error)
	io.Closer
}

// remote is a connection to a repository on a server.
type remote struct {
	source  Source
	session transport.UploadPackSession
	adv     *packp.AdvRefs
}

// server is how to reach the server of a source.
type server struct {
	transport.Transport
	endpoint *transport.Endpoint // nil for ssh, as auth
	auth     transport.AuthMethod
}

// serverOf returns the server of a source, if its host is allowed.
func (s *Store) serverOf(ctx context.Context, src Source) (*server, error) {
	u, err := sandbox.ParseGitURL(src.URL)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Failed, "its URL cannot be read")
	}
	if problem := s.hosts.check(u); problem != "" {
		return nil, sandbox.Errorf(sandbox.Failed, "%s", problem)
	}
	if u.Scheme == "ssh" {
		return &server{Transport: &overSSH{ctx: ctx, source: src, url: u, rule: s.hosts.allows(u),
			knownHosts: s.KnownHosts, limit: s.Limits.PackBytes}}, nil
	}
	endpoint, err := transport.NewEndpoint(src.URL)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Failed, "its URL cannot be read")
	}
	client := githttp.NewClientWithOptions(s.hosts.allows(u).client(u, s.routes, s.Limits.PackBytes),
		&githttp.ClientOptions{})
	over := &server{Transport: client, endpoint: endpoint}
	if secret := src.secret(); secret != "" {
		over.auth = &githttp.BasicAuth{Username: src.Username, Password: strings.TrimSpace(string(secret))}
	}
	return over, nil
}

// open opens the repository of a source.
func (s *Store) open(ctx context.Context, src Source) (repository, error) {
	if (sandbox.GitSource{URL: src.URL}).IsLocal() {
		return openLocal(s.Host, src)
	}
	return s.connect(ctx, src)
}

// connect asks a server for the refs of a repository, with the credential.
func (s *Store) connect(ctx context.Context, src Source) (*remote, error) {
	server, err := s.serverOf(ctx, src)
	if err != nil {
		return nil, err
	}
	r := &remote{source: src}
	if r.session, err = server.NewUploadPackSession(server.endpoint, server.auth); err != nil {
		return nil, r.explain(ctx, err)
	}
	if r.adv, err = r.session.AdvertisedReferencesContext(ctx); err != nil {
		return nil, r.explain(ctx, err)
	}
	return r, nil
}

// Close implements io.Closer.
func (r *remote) Close() error { return r.session.Close() }

// resolve implements repository.
func (r *remote) resolve() (found, error) {
	refs := r.adv.References
	if r.source.Ref != "" {
		return named(r.source.Ref, func(name string) (plumbing.Hash, error) { return refs[name], nil })
	}
	if r.adv.Head == nil {
		return found{}, sandbox.Errorf(sandbox.Failed, "it has no HEAD: name a ref")
	}
	f := found{want: *r.adv.Head}
	for _, target := range r.adv.Capabilities.Get(capability.SymRef) {
		if name, ok := strings.CutPrefix(target, "HEAD:refs/heads/"); ok && refs["refs/heads/"+name] == f.want {
			f.branch = name
		}
	}
	return f, nil
}

// named finds the ref that a source names. lookup returns the hash of a ref, zero if the ref does not exist.
func named(ref string, lookup func(name string) (plumbing.Hash, error)) (found, error) {
	for _, name := range []string{ref, "refs/heads/" + ref, "refs/tags/" + ref} {
		if !strings.HasPrefix(name, "refs/") {
			continue
		}
		hash, err := lookup(name)
		if err != nil {
			return found{}, err
		}
		if hash.IsZero() {
			continue
		}
		branch, isBranch := strings.CutPrefix(name, "refs/heads/")
		if !isBranch {
			branch = ""
		}
		return found{hash, branch}, nil
	}
	if !plumbing.IsHash(ref) {
		return found{}, sandbox.Errorf(sandbox.Failed, "it has no branch and no tag %q", ref)
	}
	return found{want: plumbing.NewHash(ref)}, nil
}

// fetch implements repository.
func (r *remote) fetch(ctx context.Context, m *mirror, want plumbing.Hash, l Limits) (pack string, err error) {
	tips := m.tips()
	req := packp.NewUploadPackRequestFromCapabilities(r.adv.Capabilities)
	req.Wants = []plumbing.Hash{want}
	if r.source.Depth > 0 {
		if !r.adv.Capabilities.Supports(capability.Shallow) {
			return "", sandbox.Errorf(sandbox.Failed, "the server does not support a depth")
		}
		req.Depth = packp.DepthCommits(r.source.Depth)
		if err := req.Capabilities.Set(capability.Shallow); err != nil {
			return "", sandbox.Errorf(sandbox.Failed, "the server does not support a depth")
		}
		tips = nil // a new shallow pack has all that it needs
	}
	const mostHaves = 64
	req.Haves = tips[:min(len(tips), mostHaves)]
	answer, err := r.session.UploadPack(ctx, req)
	if err != nil {
		return "", r.explain(ctx, err)
	}
	defer func() { _ = answer.Close() }() // it was read
	pack, _, err = m.install(ctx, demultiplexed(req.Capabilities, answer), l)
	if err != nil {
		return "", r.explain(ctx, err)
	}
	if len(req.Haves) > 0 {
		return "", nil
	}
	return pack, nil
}

// demultiplexed returns the pack of an answer.
func demultiplexed(l *capability.List, from io.Reader) io.Reader {
	switch {
	case l.Supports(capability.Sideband64k):
		return sideband.NewDemuxer(sideband.Sideband64k, from)
	case l.Supports(capability.Sideband):
		return sideband.NewDemuxer(sideband.Sideband, from)
	default:
		return from
	}
}

// commitOf follows tags to a commit.
func commitOf(s storer.EncodedObjectStorer, hash plumbing.Hash) (*object.Commit, error) {
	const deepest = 10
	for range deepest {
		o, err := object.GetObject(s, hash)
		if err != nil {
			return nil, sandbox.Errorf(sandbox.Failed, "object %s cannot be read: %w", hash, err)
		}
		switch o := o.(type) {
		case *object.Commit:
			return o, nil
		case *object.Tag:
			hash = o.Target
		default:
			return nil, sandbox.Errorf(sandbox.Failed, "object %s is not a commit", hash)
		}
	}
	return nil, sandbox.Errorf(sandbox.Failed, "tag %s leads to more than %d other tags", hash, deepest)
}

// explain turns an error of a connection into one for the reader. It repeats nothing that the server sent in a body,
// and never the credential.
func (r *remote) explain(ctx context.Context, err error) error {
	var (
		own     *sandbox.Error
		refused refusedAddress
		status  *githttp.Err
		netErr  net.Error
		unknown *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &own):
		return own
	case ctx.Err() != nil:
		return sandbox.Errorf(sandbox.Timeout, "it took too long: %w", ctx.Err())
	case errors.As(err, &refused):
		return sandbox.Errorf(sandbox.Failed, "%w", refused)
	case errors.Is(err, transport.ErrAuthenticationRequired), errors.Is(err, transport.ErrAuthorizationFailed):
		why := "it needs a credential: set credential_secret"
		if r.source.secret() != "" {
			why = "the credential was not accepted: check the secret and the username"
		}
		return sandbox.Errorf(sandbox.Failed, "%s", why)
	case errors.Is(err, transport.ErrRepositoryNotFound):
		return sandbox.Errorf(sandbox.Failed, "the server has no such repository, or the credential may not read it")
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		return sandbox.Errorf(sandbox.Failed, "the repository is empty")
	case errors.As(err, &status):
		return sandbox.Errorf(retryableStatus(status.StatusCode()), "the server answered with status %d", status.StatusCode())
	case errors.As(err, &unknown):
		return sandbox.Errorf(sandbox.Failed, "the certificate of the server cannot be verified (%s): have the operator "+
			"name its authority (--workspace-ca-file)", r.source.scrub(unknown.Err))
	case errors.As(err, &netErr):
		return sandbox.Errorf(sandbox.Unavailable, "the server cannot be reached: %s", r.source.scrub(err))
	default:
		return sandbox.Errorf(sandbox.Failed, "the server's answer cannot be used: %s", r.source.scrub(err))
	}
}

func retryableStatus(status int) sandbox.Code {
	if status >= 500 || status == 429 {
		return sandbox.Unavailable
	}
	return sandbox.Failed
}

func (s Source) scrub(err error) string { return scrub(err, s.Username, s.Secret) }

// scrub returns the text of an error without the credential, which a hostile server may repeat.
func scrub(err error, username string, credential sandbox.Secret) string {
	const longest = 300
	text := err.Error()
	if secret := strings.TrimSpace(string(credential)); secret != "" {
		forms := []string{
			secret, url.QueryEscape(secret), url.PathEscape(secret), base64.StdEncoding.EncodeToString([]byte(secret)),
			base64.StdEncoding.EncodeToString([]byte(username + ":" + secret)),
		}
		for _, form := range append(forms, strings.Fields(secret)...) { // such as "Bearer" and a token
			text = strings.ReplaceAll(text, form, "(secret)")
		}
	}
	if len(text) > longest {
		text = text[:longest] + "…"
	}
	return fmt.Sprintf("%q", text)
}
