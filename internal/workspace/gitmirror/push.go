package gitmirror

import (
	"context"
	"io"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Push pushes collected commits to a branch of a repository, with the credential. It creates the branch, or moves it
// forward; it never removes a commit from it. Errors: Conflict if the branch has other commits, or nothing was
// committed; otherwise as Checkout.
func (s *Store) Push(ctx context.Context, src Source, c *Collected, branch string) (err error) {
	defer recovered(&err)
	ctx, cancel := context.WithTimeout(ctx, s.Limits.Time)
	defer cancel()
	if c.Commits == 0 {
		return sandbox.Errorf(sandbox.Conflict, "branch %s has no commit beyond %s: there is nothing to push",
			c.Branch, c.Base).WithReason(sandbox.ReasonInvalidState)
	}
	server, err := s.serverOf(ctx, src)
	if err != nil {
		return err
	}
	r := &remote{source: src}
	session, err := server.NewReceivePackSession(server.endpoint, server.auth)
	if err != nil {
		return r.explain(ctx, err)
	}
	defer func() { _ = session.Close() }()
	adv, err := session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return r.explain(ctx, err)
	}
	return c.pushTo(ctx, r, session, adv, branch)
}

// pushTo updates a branch from the commit that the server advertised.
func (c *Collected) pushTo(ctx context.Context, r *remote, session transport.ReceivePackSession, adv *packp.AdvRefs,
	branch string) error {
	name := plumbing.NewBranchReferenceName(branch)
	old := adv.References[name.String()]
	switch {
	case old == c.Tip:
		return nil
	case !old.IsZero() && !c.descendsFrom(old):
		return sandbox.Errorf(sandbox.Conflict, "branch %s of the repository is at %s, which the workspace does not have: "+
			"it is never overwritten", branch, old)
	}
	req := packp.NewReferenceUpdateRequestFromCapabilities(adv.Capabilities)
	req.Commands = []*packp.Command{{Name: name, Old: old, New: c.Tip}}
	if !adv.Capabilities.Supports(capability.ReportStatus) {
		return sandbox.Errorf(sandbox.Failed, "the server does not say whether a push succeeds")
	}
	pr, pw := io.Pipe()
	packed := make(chan struct{})
	go func() { // ends with the pipe
		defer close(packed)
		var err error
		defer func() { _ = pw.CloseWithError(err) }()
		defer recovered(&err)
		err = c.mirror().encode(pw, c.all)
	}()
	req.Packfile = pr
	report, err := session.ReceivePack(ctx, req)
	_ = pr.Close()
	<-packed
	if err == nil && report != nil {
		err = report.Error()
	}
	if err != nil {
		return r.explain(ctx, err)
	}
	return nil
}

// descendsFrom reports whether the tip descends from a commit, or is that commit.
func (c *Collected) descendsFrom(old plumbing.Hash) bool {
	seen := map[plumbing.Hash]bool{}
	for queue := []plumbing.Hash{c.Tip}; len(queue) > 0; {
		hash := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if seen[hash] {
			continue
		}
		if seen[hash] = true; hash == old {
			return true
		}
		if commit, err := object.GetCommit(c.objects, hash); err == nil {
			queue = append(queue, commit.ParentHashes...)
		}
	}
	return false
}
