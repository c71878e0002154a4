package leasing

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// endRunLimit is how long a run waits until its sandbox is gone. After that the loop removes it.
const endRunLimit = time.Minute

// Run implements service.Runs. The run's own owner distinguishes its lease from an earlier one of the agent.
func (v *Service) Run(ctx context.Context, r sandbox.RunRequest) (res sandbox.RunResult, err error) {
	unset := r.Timeout == 0
	r, err = r.Normalize()
	if err != nil {
		return res, err
	}
	if unset {
		r.Timeout = 0 // use the environment's
	}
	if err := v.admitRun(ctx, &r); err != nil {
		return res, err
	}
	ref := sandbox.LeaseRef{
		ID:    sandbox.LeaseID(r.AgentDID, r.EnvironmentID),
		Owner: path.Join(r.Owner, "run", v.ids(sandbox.LedgerIDLength)),
	}
	defer func() { res.Lease = v.endRun(ctx, ref) }() // also after an error or a panic
	awake, life := sandbox.Duration(0), r.Timeout+r.Margin
	_, err = v.Acquire(ctx, sandbox.Acquire{
		AgentDID: r.AgentDID, EnvironmentID: r.EnvironmentID, Owner: ref.Owner, Tenant: r.Tenant,
		Settings: sandbox.LeaseSettings{TTL: &r.Margin, MaxLifetime: &life, SleepAfter: &awake},
		Choice:   r.Choice, MayExceed: r.MayExceed,
	})
	if err != nil {
		return res, err
	}
	return v.runIn(ctx, ref, r)
}

// admitRun refuses a run that its environment does not allow, before a sandbox is created. It sets a missing agent or
// timeout.
func (v *Service) admitRun(ctx context.Context, r *sandbox.RunRequest) error {
	env, err := v.storedEnvironment(ctx, r.EnvironmentID)
	if err != nil {
		return err
	}
	if err := env.Spec.Rules().Check("run", slices.Sorted(maps.Keys(r.Env)), r.User); err != nil {
		return err
	}
	if r.Timeout == 0 {
		r.Timeout = env.Spec.WithDefaults().CommandTimeout
	}
	if r.AgentDID != "" {
		return nil
	}
	if env.Spec.Snapshot != nil {
		return sandbox.InvalidFields("run", []sandbox.Field{
			{Name: "agent_did", Problem: "must be set: environment " + r.EnvironmentID + " keeps a snapshot for each agent"},
		})
	}
	r.AgentDID = "did:run:" + v.ids(sandbox.SandboxIDLength)
	return nil
}

// storedEnvironment returns an environment's row. GetEnvironment would also ask the backend about the deployment.
func (v *Service) storedEnvironment(ctx context.Context, id string) (env *ledger.Environment, err error) {
	err = v.store.Read(ctx, func(tx *ledger.Tx) (err error) {
		env, err = tx.KnownEnvironment(id)
		return err
	})
	return env, err
}

// runIn runs the command in a run's sandbox, with its files.
func (v *Service) runIn(ctx context.Context, ref sandbox.LeaseRef,
	r sandbox.RunRequest) (res sandbox.RunResult, err error) {
	if r.Files != nil {
		if err := v.WriteFiles(ctx, ref, "/workspace", r.Files); err != nil {
			return res, err
		}
	}
	if res.ExecResult, err = v.Exec(ctx, ref, r.ExecRequest); err != nil || len(r.Collect) == 0 {
		return res, err
	}
	res.Missing, err = v.collect(ctx, ref, r)
	return res, err
}

// collect writes paths as one tar stream, and returns the paths that match nothing or cannot be read completely.
func (v *Service) collect(ctx context.Context, ref sandbox.LeaseRef,
	r sandbox.RunRequest) (missing []string, err error) {
	to := &collected{to: r.Collected}
	out := tar.NewWriter(to)
	for _, p := range r.Collect {
		found, err := v.collectPath(ctx, ref, out, p)
		if err != nil && (to.err != nil || !isUnreadable(err)) {
			return missing, err
		}
		if err != nil || !found {
			missing = append(missing, p)
		}
	}
	return missing, lifecycle.AsError(out.Close())
}

// collected remembers the error of a writer. Only an error of the sandbox's files makes a path a missing one.
type collected struct {
	to  io.Writer
	err error
}

func (c *collected) Write(p []byte) (n int, err error) {
	n, c.err = c.to.Write(p)
	return n, c.err
}

// collectPath writes a path, or everything that matches a pattern, and reports whether there was anything. It reads the
// whole base directory of a pattern and filters here, so that it needs no program in the sandbox.
func (v *Service) collectPath(ctx context.Context, ref sandbox.LeaseRef, out *tar.Writer, p string) (bool, error) {
	base, matches := p, func(string) bool { return true }
	if strings.ContainsAny(p, `*?[{\`) {
		base, _ = doublestar.SplitPattern(p)
		matches = func(name string) bool { return underMatch(p, base, name) }
	}
	archive, err := v.ReadFiles(ctx, ref, base)
	if err != nil {
		return false, err
	}
	found, err := appendArchive(out, path.Dir(base), archive, matches)
	return found, lifecycle.AsError(errors.Join(err, archive.Close()))
}

// isUnreadable reports whether a path does not exist, or the sandbox's code has made it one that cannot be read, such
// as a link out of the sandbox's directories. It must not be able to hide the result of its command.
func isUnreadable(err error) bool {
	return sandbox.ReasonOf(err) == sandbox.ReasonFileNotFound || sandbox.CodeOf(err) == sandbox.Invalid ||
		sandbox.CodeOf(err) == sandbox.Failed
}

// underMatch reports whether a path or a directory above it, up to base, matches a pattern.
func underMatch(pattern, base, name string) bool {
	for ; len(name) > len(base); name = path.Dir(name) {
		if doublestar.MatchUnvalidated(pattern, name) {
			return true
		}
	}
	return false
}

// appendArchive copies the matching entries of an archive, and reports whether there were any. Their names are relative
// to dir.
func appendArchive(out *tar.Writer, dir string, archive io.Reader,
	matches func(name string) bool) (found bool, err error) {
	for entries := tar.NewReader(archive); ; {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return found, err
		}
		isDir, name := h.Typeflag == tar.TypeDir, path.Join(dir, h.Name)
		if !matches(name) {
			continue
		}
		found = true
		h.Name, h.PAXRecords = name[1:], nil
		if isDir {
			h.Name += "/"
		}
		if err := out.WriteHeader(h); err != nil {
			return found, err
		}
		if n, err := io.Copy(out, entries); err != nil {
			_, padding := io.CopyN(out, zeros{}, h.Size-n) // so that other entries can follow
			return found, errors.Join(err, padding)
		}
	}
}

// zeros is a reader without an end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// endRun ends a run's lease, if it acquired one, even if the caller has left.
func (v *Service) endRun(ctx context.Context, ref sandbox.LeaseRef) sandbox.Lease {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endRunLimit)
	defer cancel()
	lease, err := v.Release(ctx, ref)
	switch {
	case err == nil:
		return v.billed(ctx, lease)
	case sandbox.CodeOf(err) == sandbox.NotFound, sandbox.CodeOf(err) == sandbox.Conflict:
		return sandbox.Lease{} // the run has no lease: the agent's lease has another owner
	}
	v.log.WarnContext(ctx,
		"leasing: the run's sandbox could not be confirmed as removed; this will be tried again; the lease's time limits "+
			"end it otherwise",
		lifecycle.AboutLease(ref.ID, ""), "error", err)
	if lease, err = v.GetLease(ctx, ref.ID); err != nil || lease.Owner != ref.Owner {
		return sandbox.Lease{} // the log has the reason
	}
	return lease
}

// billed returns a run's ended lease with the model calls of its sandbox, which the ledger would otherwise have seconds
// later.
func (v *Service) billed(ctx context.Context, lease sandbox.Lease) sandbox.Lease {
	now, err := v.withCalls(ctx, lease)
	if err != nil {
		v.log.WarnContext(ctx, "leasing: the result of a run lacks model calls; they are recorded later",
			lifecycle.AboutLease(lease.ID, lease.SandboxID), "error", err)
		return lease
	}
	if now.SandboxID != lease.SandboxID { // the agent has another sandbox by now
		return lease
	}
	return now
}

// withCalls records the remaining model calls from the gateway of a lease's environment, and reads the lease again.
func (v *Service) withCalls(ctx context.Context, lease sandbox.Lease) (sandbox.Lease, error) {
	env, err := v.storedEnvironment(ctx, lease.EnvironmentID)
	if err != nil || len(env.Spec.LLM) == 0 {
		return lease, err
	}
	x, err := v.BackendFor(env.Backend)
	if err != nil {
		return lease, err
	}
	if err := v.llm.Drain(ctx, x, env.ID, env.Instance); err != nil {
		return lease, err
	}
	return v.GetLease(ctx, lease.ID)
}
