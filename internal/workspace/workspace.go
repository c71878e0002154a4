// Package workspace gives sandboxes the Git repository that their environment names. The service fetches it, with a
// credential that no sandbox gets, and writes it into the sandbox before anything runs there. Package gitmirror has the
// rules for what comes from a repository.
//
// The step that creates a sandbox, or assigns one of a pool, writes the workspace. A retry of the step begins again
// from an empty directory, unless code has already run in the sandbox. A sandbox that wakes has its files, so nothing
// is fetched again. A sandbox that waits in a pool has no workspace.
package workspace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/sealedsecrets"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/output"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gitmirror"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Secrets opens the secrets of environments.
type Secrets interface {
	// Open opens one secret.
	Open(row *sealedsecrets.Secret) (sandbox.Secret, error)
}

// Config configures a Service. All fields except Mirrors, Limits and Pause are required.
type Config struct {
	Core    *lifecycle.Core
	Store   *ledger.Store
	Secrets Secrets
	// Mirrors fetches repositories. Without it, environments cannot have workspaces.
	Mirrors *gitmirror.Store
	// Outputs keeps the commits of ended leases.
	Outputs *output.Service
	// Limits bound what is collected from a sandbox.
	Limits gitmirror.Limits
	// Life ends when the service closes. Fetches are then interrupted, and another process repeats them.
	Life context.Context
	// Pause waits for a time or the end of a context; nil means a real timer.
	Pause func(ctx context.Context, d time.Duration) error
	Log   *slog.Logger
}

// Service is safe for concurrent use, by any number of processes on one ledger.
type Service struct {
	Config
	// reading holds one element for each read of an ended lease's workspace.
	reading chan struct{}
}

var (
	_ lifecycle.Preparer = (*Service)(nil)
	_ lifecycle.Leaver   = (*Service)(nil)
)

// New returns a Service.
func New(c Config) *Service {
	if c.Pause == nil {
		c.Pause = pause
	}
	return &Service{Config: c, reading: make(chan struct{}, readers)}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Limits of attempts.
const (
	// tries is how often a fetch is tried before its lease fails. The first wait is firstWait, and each later one
	// doubles.
	tries     = 4
	firstWait = time.Second
	// fillTimeout bounds the fetch and the writing into a sandbox.
	fillTimeout = 10 * time.Minute
)

// Check rejects a workspace from a host that the operator does not allow. Errors: Invalid.
func (v *Service) Check(p sandbox.PutEnvironment) error {
	if p.Workspace == nil || p.Workspace.Git == nil {
		return nil
	}
	bad := func(field, problem string) error {
		return sandbox.InvalidFields("environment "+p.ID, []sandbox.Field{{Name: "workspace.git." + field, Problem: problem}})
	}
	git := p.Workspace.Git
	if problem := v.Mirrors.Check(git.URL); problem != "" {
		return bad("url", problem)
	}
	if git.IsSSH() && git.KnownHosts == "" && v.Mirrors.KnownHosts == "" {
		return bad("known_hosts", "must have the key of the server: the reconciler was started without "+
			"--workspace-known-hosts")
	}
	return nil
}

// Prepare implements lifecycle.Preparer.
func (v *Service) Prepare(tx *ledger.Tx, s *ledger.Sandbox, b lifecycle.Beginning) (lifecycle.Fill, error) {
	w := b.Spec.WithDefaults().Workspace
	if b.Action != lifecycle.Spawn && b.Action != lifecycle.Assign || w == nil || w.Git == nil || b.InUse {
		return nil, nil
	}
	sealed, err := sealedsecrets.In(tx).Of(s.EnvironmentID)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, t *lifecycle.Step) (lifecycle.Settle, error) {
		return v.fill(ctx, t, *w, sealed)
	}, nil
}

// fill fetches a workspace and writes it into an unused sandbox.
func (v *Service) fill(ctx context.Context, t *lifecycle.Step, w sandbox.Workspace,
	sealed []sealedsecrets.Secret) (lifecycle.Settle, error) {
	ctx, cancel := v.untilClose(ctx, fillTimeout)
	defer cancel()
	ctx, stop := v.Core.WhileWanted(ctx, t.Row.ID, errUnwanted)
	defer stop()
	settle, err := v.fillWanted(ctx, t, w, sealed)
	if errors.Is(context.Cause(ctx), errUnwanted) {
		return nil, errUnwanted
	}
	return settle, err
}

// errUnwanted: the lease ended before its workspace was written.
var errUnwanted = sandbox.Errorf(sandbox.Failed, "the lease ended before its workspace was written")

func (v *Service) fillWanted(ctx context.Context, t *lifecycle.Step, w sandbox.Workspace,
	sealed []sealedsecrets.Secret) (lifecycle.Settle, error) {
	source, err := v.sourceOf(w.Git, sealed)
	if err != nil {
		return nil, err
	}
	checkout, err := v.fetch(ctx, source)
	if err != nil {
		return nil, v.failed(w.Git, err)
	}
	defer checkout.Close()
	ready := sandbox.WorkspaceReady{
		Path: w.Path, URL: w.Git.URL, Ref: w.Git.Ref, Commit: checkout.Commit, Files: checkout.Files,
		Branch:       w.BranchOf(t.Row.AgentDID, t.Row.EnvironmentID, t.Row.Lease(), t.Row.Generation),
		SkippedLinks: checkout.SkippedLinks, Submodules: checkout.Submodules,
	}
	err = t.On.RemoveFile(ctx, t.Handle, sandbox.FileRemoval{Path: w.Path, Recursive: true})
	if err != nil && sandbox.ReasonOf(err) != sandbox.ReasonFileNotFound {
		return nil, err
	}
	stream := checkout.Tar(ctx, ready.Branch)
	err = t.On.CopyTo(ctx, t.Handle, w.Path, stream)
	_ = stream.Close() // only read
	if sandbox.IsRetryable(err) {
		return nil, err
	}
	if err != nil {
		return nil, v.failed(w.Git, err)
	}
	return func(tx *ledger.Tx, s *ledger.Sandbox) error {
		return tx.AppendSandboxEvent(s, sandbox.EventWorkspaceReady, ready)
	}, nil
}

// sourceOf returns what to fetch, with the opened credential.
func (v *Service) sourceOf(g *sandbox.GitSource, sealed []sealedsecrets.Secret) (gitmirror.Source, error) {
	source := gitmirror.Source{URL: g.URL, Ref: g.Ref, Depth: int(g.Depth), Submodules: g.Submodules,
		KnownHosts: g.KnownHosts}
	if g.Credential == "" {
		return source, nil
	}
	for i := range sealed {
		if sealed[i].Name != g.Credential {
			continue
		}
		var err error
		source.Username = g.Username
		source.Secret, err = v.Secrets.Open(&sealed[i])
		return source, err
	}
	return source, v.failed(g, sandbox.Errorf(sandbox.Failed, "secret %s has no value: set it again", g.Credential))
}

// fetch fetches a repository. It tries a few times while the server cannot be reached.
func (v *Service) fetch(ctx context.Context, source gitmirror.Source) (c *gitmirror.Checkout, err error) {
	if v.Mirrors == nil {
		return nil, sandbox.Errorf(sandbox.Failed, "%s", v.Mirrors.Check(source.URL))
	}
	wait := firstWait
	for n := 1; ; n++ {
		c, err = v.Mirrors.Checkout(ctx, source)
		if err == nil || !sandbox.IsRetryable(err) || n == tries {
			break
		}
		if v.Pause(ctx, wait) != nil {
			break
		}
		wait *= 2
	}
	if err := v.Mirrors.Prune(); err != nil { // the next fetch tries again
		v.Log.WarnContext(ctx, "workspace: removing unused mirrors", "error", err)
	}
	return c, err
}

// failed is the error of a lease whose workspace cannot be made. An interrupted fetch is retried; any other error fails
// the lease.
func (v *Service) failed(g *sandbox.GitSource, cause error) error {
	if v.Life.Err() != nil {
		return sandbox.Errorf(sandbox.Unavailable, "workspace %s: the service is closing", g.URL)
	}
	what := "workspace " + g.URL
	if g.Ref != "" {
		what += fmt.Sprintf(" at %q", g.Ref)
	}
	switch sandbox.CodeOf(cause) {
	case sandbox.NotFound, sandbox.Conflict: // of the sandbox itself
		return cause
	default:
		return sandbox.Errorf(sandbox.Failed, "%s: %s; correct workspace or the repository, and lease again", what, cause).
			WithReason(sandbox.ReasonWorkspaceFailed)
	}
}

// untilClose limits a long call by d and by the service's life.
func (v *Service) untilClose(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, d)
	stop := context.AfterFunc(v.Life, cancel)
	return ctx, func() { stop(); cancel() }
}
