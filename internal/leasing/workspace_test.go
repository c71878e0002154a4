package leasing_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/fake"
	hostaccess "github.com/sandbox-lease/terraform-provider-sandbox/internal/host"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gitmirror"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/workspace/gittest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// privateRepository returns a repository that only a user with the secret of withSecret may read, and the mirrors for
// it.
func privateRepository(t *testing.T) (gittest.Repository, *gitmirror.Store) {
	t.Helper()
	server := gittest.New(t)
	repo := server.Repository("team/app.git", map[string]string{"README": "hello"})
	server.Require("x-access-token", secretValue)
	mirrors, err := gitmirror.New(gitmirror.Config{Dir: t.TempDir(), Allow: []string{server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	return repo, mirrors
}

// useMirrors opens the engine again, with mirrors.
func (w *world) useMirrors(m *gitmirror.Store) {
	w.Helper()
	if err := w.engine.Close(); err != nil {
		w.Fatal(err)
	}
	w.mirrors = m
	w.engine = w.newEngine(w.store)
}

// withWorkspace starts sandboxes with a repository.
func withWorkspace(r gittest.Repository) func(p *sandbox.PutEnvironment) {
	return func(p *sandbox.PutEnvironment) {
		p.Workspace = &sandbox.Workspace{Git: &sandbox.GitSource{URL: r.URL, Credential: "token"}}
	}
}

// workspaceOf returns what the events of a sandbox say about its workspace.
func (w *world) workspaceOf(sandboxID string) (all []sandbox.WorkspaceReady) {
	w.Helper()
	events, err := w.engine.ListEvents(w.Context(), sandbox.EventFilter{SandboxID: sandboxID})
	if err != nil {
		w.Fatal(err)
	}
	for _, e := range events {
		if e.Type == sandbox.EventWorkspaceReady {
			var ready sandbox.WorkspaceReady
			if err := json.Unmarshal(e.Data, &ready); err != nil {
				w.Fatal(err)
			}
			all = append(all, ready)
		}
	}
	return all
}

func TestAWorkspaceIsThereBeforePostStartAndItsCredentialIsNowhere(t *testing.T) {
	repo, mirrors := privateRepository(t)
	inWorld(t, func(w *world) {
		w.useMirrors(mirrors)
		w.startLoop()
		w.environment(withSecret, begins("echo first"), withWorkspace(repo))
		calls := 0
		w.backend.Fault(fake.OpExec, func(context.Context) error {
			if calls++; calls < 3 { // it is removed and written
				return nil
			}
			for id := range w.backend.Sandboxes() {
				if text, _ := w.backend.FileOf(id, "/workspace/app/README"); text != "hello" {
					t.Errorf("when a command is run, the workspace has %q", text)
				}
			}
			return nil
		})
		l := w.acquire(ann)
		if w.backend.Fault(fake.OpExec, nil); calls < 3 {
			t.Errorf("no command was run: %d calls", calls)
		}
		ready := w.workspaceOf(l.SandboxID)
		if len(ready) != 1 || ready[0].Path != "/workspace/app" || ready[0].Branch != "sandbox/did-plc-ann/1" ||
			len(ready[0].Commit) != 40 {
			t.Fatalf("its workspace is %+v", ready)
		}
		head, _ := w.backend.FileOf(l.SandboxID, "/workspace/app/.git/HEAD")
		at, _ := w.backend.FileOf(l.SandboxID, path.Join("/workspace/app/.git/refs/heads", ready[0].Branch))
		if head != "ref: refs/heads/"+ready[0].Branch+"\n" || at != ready[0].Commit+"\n" {
			t.Errorf("HEAD is %q and the branch %q", head, at)
		}
		if got := w.backend.Secrets(l.SandboxID); len(got) != 0 {
			t.Errorf("the sandbox got %d secrets", len(got))
		}
		for name, text := range w.backend.Files(l.SandboxID) {
			if strings.Contains(text, secretValue) {
				t.Errorf("%s has the credential", name)
			}
		}
		w.wantNotInLedger(secretValue)
		// A woken sandbox has its files, and nothing is fetched.
		w.backend.PutFile(l.SandboxID, "/workspace/app/README", "changed")
		requests := len(repo.Authorizations())
		if _, err := w.engine.Sleep(w.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.engine.Wake(w.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
			t.Fatal(err)
		}
		if text, _ := w.backend.FileOf(l.SandboxID, "/workspace/app/README"); text != "changed" ||
			len(repo.Authorizations()) != requests {
			t.Errorf("after a wake, the workspace has %q", text)
		}
		// The next generation has its own branch.
		if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
			t.Fatal(err)
		}
		next := w.acquire(ann)
		if ready := w.workspaceOf(next.SandboxID); len(ready) != 1 || ready[0].Branch != "sandbox/did-plc-ann/2" {
			t.Errorf("the next workspace is %+v", ready)
		}
		if n := repo.Packs.Load(); n != 1 {
			t.Errorf("%d packs were fetched", n)
		}
	})
}

func TestASandboxOfAPoolGetsItsWorkspaceWhenItIsAssigned(t *testing.T) {
	repo, mirrors := privateRepository(t)
	inWorld(t, func(w *world) {
		w.useMirrors(mirrors)
		w.startLoop()
		w.environment(withSecret, withPool(1), withWorkspace(repo))
		later(time.Minute)
		if n := len(repo.Authorizations()); n != 0 || len(w.paused()) != 1 {
			t.Errorf("%d requests were made for %d sandboxes of the pool", n, len(w.paused()))
		}
		later(time.Second)
		waiting := w.paused()
		l := w.acquire(ann)
		if text, _ := w.backend.FileOf(l.SandboxID, "/workspace/app/README"); text != "hello" || !waiting[l.SandboxID] {
			t.Errorf("sandbox %s has %q", l.SandboxID, text)
		}
	})
}

func TestAFetchThatFailsFailsTheLease(t *testing.T) {
	for name, waits := range map[string]int64{"of its own": 0, "from a pool": 1} {
		t.Run(name, func(t *testing.T) {
			repo, mirrors := privateRepository(t)
			repo.Require("x-access-token", "another")
			inWorld(t, func(w *world) {
				w.useMirrors(mirrors)
				w.startLoop()
				w.environment(withSecret, begins("echo never"), withWorkspace(repo), func(p *sandbox.PutEnvironment) {
					if waits > 0 {
						p.WarmPool = &sandbox.WarmPool{Size: waits}
					}
				})
				later(time.Minute)
				_, err := w.engine.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "test"})
				if sandbox.CodeOf(err) != sandbox.Failed || sandbox.ReasonOf(err) != sandbox.ReasonWorkspaceFailed ||
					!strings.Contains(err.Error(), "the credential was not accepted") ||
					!strings.Contains(err.Error(), repo.URL) || strings.Contains(err.Error(), secretValue) {
					t.Fatalf("the acquire ended with %v", err)
				}
				later(time.Second)
				l := w.sandboxIs(sandbox.SandboxDeleted, sandbox.ReasonWorkspaceFailed)
				w.want(l, sandbox.LeaseDestroyed, sandbox.EndedByFailed)
				if told := w.told(l.SandboxID); count(told, sandbox.EventExecStarted) != 0 ||
					count(told, sandbox.EventFailed) != 1 {
					t.Errorf("its events are %q", told)
				}
				w.wantNotInLedger(secretValue)
			})
		})
	}
}

func TestALeaseThatIsReleasedDuringAHangingFetchEndsAtOnce(t *testing.T) {
	endsDuringAHangingFetch(t, func(p *sandbox.PutEnvironment, server string) {
		p.Workspace = &sandbox.Workspace{Git: &sandbox.GitSource{URL: server + "/app"}}
	})
}

// endsDuringAHangingFetch releases a lease while a fetch of its environment from a server hangs.
func endsDuringAHangingFetch(t *testing.T, fetches func(p *sandbox.PutEnvironment, server string)) {
	t.Helper()
	asked := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	mirrors, err := gitmirror.New(gitmirror.Config{Dir: t.TempDir(), Allow: []string{server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	inWorld(t, func(w *world) {
		w.useMirrors(mirrors)
		w.startLoop()
		w.environment(func(p *sandbox.PutEnvironment) { fetches(p, server.URL) })
		l := w.acquireLater()
		<-asked
		began := w.now()
		if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
			t.Fatal(err)
		}
		w.want(w.lease(l.ID), sandbox.LeaseDestroyed, sandbox.EndedByRelease)
		if took := w.now().Sub(began); took > 5*time.Second {
			t.Errorf("its end took %s", took)
		}
	})
}

func TestAWorkspaceFromAHostThatIsNotAllowedIsRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		_, err := w.engine.PutEnvironment(w.Context(), sandbox.PutEnvironment{ID: game, Owner: "test",
			EnvironmentSpec: sandbox.EnvironmentSpec{Image: "player", Workspace: &sandbox.Workspace{
				Git: &sandbox.GitSource{URL: "https://git.example.com/app"}}}})
		if sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "--workspace-allow git.example.com") {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestAWorktreeOfTheMachineIsAWorkspaceWhereItsDirectoryIsAllowed(t *testing.T) {
	repo := gittest.New(t).Repository("app.git", map[string]string{"README": "hello"})
	machine, err := hostaccess.New(hostaccess.Config{Directories: []string{repo.Dir}})
	if err != nil {
		t.Fatal(err)
	}
	mirrors, err := gitmirror.New(gitmirror.Config{Dir: t.TempDir(), Host: machine})
	if err != nil {
		t.Fatal(err)
	}
	inWorld(t, func(w *world) {
		p := sandbox.PutEnvironment{ID: game, Owner: "test", EnvironmentSpec: sandbox.EnvironmentSpec{Image: "player",
			Workspace: &sandbox.Workspace{Git: &sandbox.GitSource{URL: "file://" + repo.Path}}}}
		put := func(dir string) error {
			p.Workspace.Git.URL = "file://" + dir
			_, err := w.engine.PutEnvironment(w.Context(), p)
			return err
		}
		refused := func(err error, says string) {
			w.Helper()
			var e *sandbox.Error
			if !errors.As(err, &e) || e.Code != sandbox.Invalid || len(e.Fields) != 1 || e.Fields[0].Name != "workspace.git.url" ||
				!strings.Contains(e.Fields[0].Problem, says) {
				w.Errorf("the error is %v, want %q", err, says)
			}
		}
		refused(put(repo.Path), "--mount-allow")
		w.useMirrors(mirrors)
		refused(put("/srv/app"), "does not exist")
		refused(put("/etc"), "--mount-allow")
		refused(put(repo.Dir), "not a Git repository")
		w.startLoop()
		w.environment(func(e *sandbox.PutEnvironment) {
			p.Workspace.Git.URL = "file://" + repo.Path
			e.Workspace = p.Workspace
		})
		l := w.acquire(ann)
		if text, _ := w.backend.FileOf(l.SandboxID, "/workspace/app/README"); text != "hello" {
			t.Errorf("the workspace has %q", text)
		}
		if config, _ := w.backend.FileOf(l.SandboxID, "/workspace/app/.git/config"); strings.Contains(config, repo.Dir) {
			t.Errorf("the sandbox sees a path of the machine: %s", config)
		}
		_, err := w.engine.PushWorkspace(w.Context(), sandbox.LeaseRef{ID: l.ID})
		if sandbox.CodeOf(err) != sandbox.Conflict || !strings.Contains(err.Error(), "only read") {
			t.Errorf("a push ends with %v", err)
		}
	})
}

func TestAWorkspaceIsWrittenAgainWhenItsReconcilerDiesBeforeTheLeaseIsReady(t *testing.T) {
	repo, mirrors := privateRepository(t)
	twoProcesses(t, func(w, other *world) {
		w.useMirrors(mirrors)
		other.useMirrors(mirrors)
		w.environment(withSecret, begins("echo first"), withWorkspace(repo))
		if _, err := w.engine.Release(w.Context(), sandbox.LeaseRef{ID: annLease}); err != nil {
			t.Fatal(err)
		}
		calls := 0
		w.backend.Fault(fake.OpExec, func(ctx context.Context) error {
			if calls++; calls != 2 { // the second call writes the workspace
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		l := w.acquireLater()
		for repo.Packs.Load() == 0 {
			synctest.Wait()
		}
		w.cutOff()
		other.startLoop()
		later(30 * time.Second)
		other.want(other.lease(annLease), sandbox.LeaseActive, "")
		if text, _ := w.backend.FileOf(l.SandboxID, "/workspace/app/README"); text != "hello" || repo.Packs.Load() != 1 {
			t.Errorf("the workspace has %q after %d packs", text, repo.Packs.Load())
		}
		if ready := other.workspaceOf(l.SandboxID); len(ready) != 1 {
			t.Errorf("its workspace is %+v", ready)
		}
	})
}

// commitInside makes a commit in the workspace of a sandbox, as its own git would, and returns the hash.
func (w *world) commitInside(sandboxID string, ready sandbox.WorkspaceReady) string {
	w.Helper()
	dir := w.TempDir()
	files := w.backend.Files(sandboxID)
	for name, content := range files {
		rest, isInside := strings.CutPrefix(name, ready.Path+"/")
		if !isInside || content == "" { // a directory has no content
			continue
		}
		at := filepath.Join(dir, rest)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(content), 0o644)); err != nil {
			w.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "README"), []byte("changed by the agent\n"), 0o644); err != nil {
		w.Fatal(err)
	}
	for _, args := range [][]string{{"add", "README"}, {"commit", "--quiet", "--message", "work"}} {
		gittest.Git(w, dir, nil, args...)
	}
	err := filepath.WalkDir(filepath.Join(dir, ".git"), func(p string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(p)
		name, relErr := filepath.Rel(dir, p)
		w.backend.PutFile(sandboxID, path.Join(ready.Path, filepath.ToSlash(name)), string(content))
		return errors.Join(err, relErr)
	})
	if err != nil {
		w.Fatal(err)
	}
	return gittest.Git(w, dir, nil, "rev-parse", "HEAD")
}

func TestCommitsOfALeaseAreCollected(t *testing.T) {
	repo, mirrors := privateRepository(t)
	inWorld(t, func(w *world) {
		w.useMirrors(mirrors)
		w.environment(withSecret, withWorkspace(repo))
		l := w.acquire(ann)
		ready := w.workspaceOf(l.SandboxID)[0]
		ref := sandbox.LeaseRef{ID: l.ID}
		if _, err := w.engine.CollectWorkspace(w.Context(), ref, sandbox.WorkspaceBundle); sandbox.CodeOf(err) !=
			sandbox.Conflict {
			t.Errorf("without commits, the error is %v", err)
		}
		tip := w.commitInside(l.SandboxID, ready)
		collect := func(form sandbox.WorkspaceForm) []byte {
			stream, err := w.engine.CollectWorkspace(w.Context(), ref, form)
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(stream)
			if err := errors.Join(err, stream.Close()); err != nil {
				t.Fatal(err)
			}
			return content
		}
		if diff := string(collect(sandbox.WorkspaceDiff)); !strings.Contains(diff, "+changed by the agent") {
			t.Errorf("the diff is %q", diff)
		}
		file := filepath.Join(t.TempDir(), "work.bundle")
		if err := os.WriteFile(file, collect(sandbox.WorkspaceBundle), 0o600); err != nil {
			t.Fatal(err)
		}
		gittest.Git(t, repo.Path, nil, "bundle", "verify", file)
		gittest.Git(t, repo.Path, nil, "fetch", "--quiet", file, "refs/heads/"+ready.Branch+":refs/heads/agents")
		if got := gittest.Git(t, repo.Path, nil, "rev-parse", "agents"); got != tip {
			t.Errorf("the bundle has %s, want %s", got, tip)
		}
		for _, r := range []sandbox.LeaseRef{{ID: l.ID, Generation: 7}, {ID: sandbox.LeaseID(bob, game)}} {
			if _, err := w.engine.CollectWorkspace(w.Context(), r, sandbox.WorkspaceDiff); err == nil {
				t.Errorf("lease %+v was collected from", r)
			}
		}
	})
}

// onEnd sets what happens to the commits at the end of the lease.
func onEnd(e sandbox.WorkspaceEnd) func(p *sandbox.PutEnvironment) {
	return func(p *sandbox.PutEnvironment) { p.Workspace.OnEnd, p.Workspace.PushPrefix = e, "agents/" }
}

// endOf decodes what the events of a sandbox say about the end of its workspace.
func (w *world) endOf(sandboxID string) (kept []sandbox.WorkspaceCollected, lost []sandbox.WorkspaceLost) {
	w.Helper()
	events, err := w.engine.ListEvents(w.Context(), sandbox.EventFilter{SandboxID: sandboxID})
	if err != nil {
		w.Fatal(err)
	}
	for _, e := range events {
		switch e.Type {
		case sandbox.EventWorkspaceCollected:
			kept = append(kept, sandbox.WorkspaceCollected{})
			err = json.Unmarshal(e.Data, &kept[len(kept)-1])
		case sandbox.EventWorkspaceLost:
			lost = append(lost, sandbox.WorkspaceLost{})
			err = json.Unmarshal(e.Data, &lost[len(lost)-1])
		}
		if err != nil {
			w.Fatal(err)
		}
	}
	return kept, lost
}

// keptOf reads the workspace of a lease.
func (w *world) keptOf(r sandbox.LeaseRef, form sandbox.WorkspaceForm) ([]byte, error) {
	stream, err := w.engine.CollectWorkspace(w.Context(), r, form)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(stream)
	return content, errors.Join(err, stream.Close())
}

func TestCommitsOfAnEndedLeaseAreKept(t *testing.T) {
	for name, end := range map[string]func(w *world, l sandbox.Lease, r gittest.Repository){
		"released": func(w *world, _ sandbox.Lease, _ gittest.Repository) { w.release(ann) },
		"by its ttl": func(w *world, l sandbox.Lease, _ gittest.Repository) {
			later(l.ExpiresAt.Sub(w.now()) + time.Second)
		},
		"asleep, stopped": func(w *world, l sandbox.Lease, repo gittest.Repository) {
			w.environment(withSecret, withWorkspace(repo), func(p *sandbox.PutEnvironment) { p.SleepMode = sandbox.SleepStop })
			if _, err := w.engine.Sleep(w.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
				w.Fatal(err)
			}
			w.release(ann)
		},
	} {
		t.Run(name, func(t *testing.T) {
			repo, mirrors := privateRepository(t)
			inWorld(t, func(w *world) {
				w.useMirrors(mirrors)
				w.startLoop()
				w.environment(withSecret, withWorkspace(repo),
					func(p *sandbox.PutEnvironment) { p.TTL = sandbox.Duration(10 * time.Minute) })
				l := w.acquire(ann)
				ready := w.workspaceOf(l.SandboxID)[0]
				tip := w.commitInside(l.SandboxID, ready)
				w.backend.Fault(fake.OpReadDisk, func(context.Context) error {
					if state := w.backend.Sandboxes()[l.SandboxID].State; state == sandbox.StateRunning {
						t.Errorf("it is read while it is %s", state)
					}
					return nil
				})
				end(w, l, repo)
				later(time.Second)
				if got := w.lease(l.ID); got.Status != sandbox.LeaseDestroyed {
					t.Fatalf("the lease is %s", got.Status)
				}
				next := w.acquire(ann) // reading the ended generation does not touch the next one
				ref := sandbox.LeaseRef{ID: l.ID, Generation: 1}
				bundle, err := w.keptOf(ref, sandbox.WorkspaceBundle)
				diff, diffErr := w.keptOf(ref, sandbox.WorkspaceDiff)
				if err := errors.Join(err, diffErr); err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(string(diff), "+changed by the agent") {
					t.Errorf("the diff is %q", diff)
				}
				file := filepath.Join(t.TempDir(), "work.bundle")
				if err := os.WriteFile(file, bundle, 0o600); err != nil {
					t.Fatal(err)
				}
				branch := "kept/" + sandbox.RefSlug(name)
				gittest.Git(t, repo.Path, nil, "fetch", "--quiet", file, "refs/heads/"+ready.Branch+":refs/heads/"+branch)
				if got := gittest.Git(t, repo.Path, nil, "rev-parse", branch); got != tip {
					t.Errorf("the bundle has %s, want %s", got, tip)
				}
				kept, lost := w.endOf(l.SandboxID)
				if len(kept) != 1 || len(lost) != 0 || kept[0].Commit != tip || kept[0].Commits != 1 ||
					kept[0].BundleBytes != int64(len(bundle)) || kept[0].DiffBytes != int64(len(diff)) {
					t.Errorf("its end is %+v, %+v", kept, lost)
				}
				if _, err := w.keptOf(sandbox.LeaseRef{ID: next.ID, Generation: 2}, sandbox.WorkspaceBundle); sandbox.CodeOf(err) !=
					sandbox.Conflict {
					t.Errorf("the next generation has %v", err)
				}
				if _, err := w.keptOf(sandbox.LeaseRef{ID: l.ID, Generation: 1, Owner: "other"}, sandbox.WorkspaceDiff); err == nil {
					t.Error("another owner reads it")
				}
			})
		})
	}
}

func TestALeaseWithoutCommitsAndOneThatDiscardsKeepNothing(t *testing.T) {
	repo, mirrors := privateRepository(t)
	inWorld(t, func(w *world) {
		w.useMirrors(mirrors)
		w.environment(withSecret, withWorkspace(repo))
		l := w.acquire(ann)
		w.release(ann)
		if _, err := w.keptOf(sandbox.LeaseRef{ID: l.ID}, sandbox.WorkspaceBundle); sandbox.CodeOf(err) != sandbox.Conflict {
			t.Errorf("without commits, the error is %v", err)
		}
		w.environment(withWorkspace(repo), onEnd(sandbox.WorkspaceEndDiscard), func(p *sandbox.PutEnvironment) {
			p.Secrets = []string{"token"}
		})
		l = w.acquire(ann)
		w.commitInside(l.SandboxID, w.workspaceOf(l.SandboxID)[0])
		w.release(ann)
		if _, err := w.keptOf(sandbox.LeaseRef{ID: l.ID}, sandbox.WorkspaceDiff); sandbox.CodeOf(err) != sandbox.LeaseEnded {
			t.Errorf("with discard, the error is %v", err)
		}
		if kept, lost := w.endOf(l.SandboxID); len(kept)+len(lost) != 0 {
			t.Errorf("with discard, its end is %+v, %+v", kept, lost)
		}
	})
}

func TestTheBranchOfAnEndedLeaseIsPushedOrElseKept(t *testing.T) {
	repo, mirrors := privateRepository(t)
	inWorld(t, func(w *world) {
		w.useMirrors(mirrors)
		w.environment(withSecret, withWorkspace(repo), onEnd(sandbox.WorkspaceEndPush))
		l := w.acquire(ann)
		tip := w.commitInside(l.SandboxID, w.workspaceOf(l.SandboxID)[0])
		w.release(ann)
		if got := gittest.Git(t, repo.Path, nil, "rev-parse", "agents/sandbox/did-plc-ann/1"); got != tip {
			t.Errorf("the branch is at %s, want %s", got, tip)
		}
		diff, err := w.keptOf(sandbox.LeaseRef{ID: l.ID}, sandbox.WorkspaceDiff)
		if _, none := w.keptOf(sandbox.LeaseRef{ID: l.ID}, sandbox.WorkspaceBundle); err != nil || len(diff) == 0 ||
			!strings.Contains(none.Error(), "agents/sandbox/did-plc-ann/1") {
			t.Errorf("the diff is %q, %v; the bundle: %v", diff, err, none)
		}
		l = w.acquire(ann)
		tip = w.commitInside(l.SandboxID, w.workspaceOf(l.SandboxID)[0])
		repo.Require("x-access-token", "another")
		w.release(ann)
		kept, lost := w.endOf(l.SandboxID)
		if len(kept) != 1 || len(lost) != 0 || kept[0].Commit != tip || kept[0].BundleBytes == 0 || kept[0].Pushed != "" ||
			!strings.Contains(kept[0].Problem, "the credential was not accepted") {
			t.Errorf("its end is %+v, %+v", kept, lost)
		}
		w.wantNotInLedger(secretValue)
	})
}

func TestAWorkspaceThatCannotBeReadDelaysTheRemovalByABound(t *testing.T) {
	hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, fault := range map[string]struct {
		op    fake.Op
		fails func(context.Context) error
	}{
		"its disk hangs":       {fake.OpReadDisk, hangs},
		"its freezing hangs":   {fake.OpSleep, hangs},
		"its freezing fails":   {fake.OpSleep, func(context.Context) error { return sandbox.Errorf(sandbox.Failed, "no") }},
		"its disk stays away":  {fake.OpReadDisk, func(context.Context) error { return sandbox.Errorf(sandbox.Unavailable, "no") }},
		"its repository fails": {fake.OpReadDisk, func(context.Context) error { return sandbox.Errorf(sandbox.Failed, "no") }},
	} {
		t.Run(name, func(t *testing.T) {
			repo, mirrors := privateRepository(t)
			inWorld(t, func(w *world) {
				w.useMirrors(mirrors)
				w.startLoop()
				w.environment(withSecret, withWorkspace(repo))
				l := w.acquire(ann)
				w.commitInside(l.SandboxID, w.workspaceOf(l.SandboxID)[0])
				w.backend.Fault(fault.op, fault.fails)
				ended := w.now()
				w.release(ann)
				if took := w.now().Sub(ended); took > 31*time.Second {
					t.Errorf("the removal took %s", took)
				}
				w.want(w.lease(l.ID), sandbox.LeaseDestroyed, sandbox.EndedByRelease)
				if kept, lost := w.endOf(l.SandboxID); len(kept) != 0 || len(lost) != 1 || lost[0].Reason == "" {
					t.Errorf("its end is %+v, %+v", kept, lost)
				}
				if _, err := w.keptOf(sandbox.LeaseRef{ID: l.ID}, sandbox.WorkspaceDiff); err == nil ||
					!strings.Contains(err.Error(), "was lost") {
					t.Errorf("reading it: %v", err)
				}
			})
		})
	}
}

func TestAWorkspaceWhoseBackendIsAwayIsKeptOnceItIsBack(t *testing.T) {
	repo, mirrors := privateRepository(t)
	inWorld(t, func(w *world) {
		w.useMirrors(mirrors)
		w.startLoop()
		w.environment(withSecret, withWorkspace(repo))
		l := w.acquire(ann)
		w.commitInside(l.SandboxID, w.workspaceOf(l.SandboxID)[0])
		away := func(context.Context) error { return sandbox.Errorf(sandbox.Unavailable, "away") }
		for _, op := range fake.Ops() {
			w.backend.Fault(op, away)
		}
		_, _ = w.engine.Release(w.Context(), sandbox.LeaseRef{ID: l.ID}) // it continues
		later(5 * time.Minute)
		if kept, lost := w.endOf(l.SandboxID); len(kept)+len(lost) != 0 {
			t.Errorf("while its backend is away, its end is %+v, %+v", kept, lost)
		}
		for _, op := range fake.Ops() {
			w.backend.Fault(op, nil)
		}
		later(2 * time.Minute)
		if kept, lost := w.endOf(l.SandboxID); len(kept) != 1 || len(lost) != 0 {
			t.Errorf("its end is %+v, %+v", kept, lost)
		}
		w.want(w.lease(l.ID), sandbox.LeaseDestroyed, sandbox.EndedByRelease)
	})
}

func TestAWorkspaceIsKeptByTheNextReconcilerWhenOneDies(t *testing.T) {
	repo, mirrors := privateRepository(t)
	twoProcesses(t, func(w, other *world) {
		w.useMirrors(mirrors)
		other.useMirrors(mirrors)
		w.environment(withSecret, withWorkspace(repo))
		w.release(ann)
		l := w.acquire(ann)
		w.commitInside(l.SandboxID, w.workspaceOf(l.SandboxID)[0])
		calls := 0
		w.backend.Fault(fake.OpReadDisk, func(ctx context.Context) error {
			if calls++; calls > 1 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		go func() { _, _ = w.engine.Release(w.Context(), sandbox.LeaseRef{ID: l.ID}) }()
		synctest.Wait()
		w.cutOff()
		other.startLoop()
		later(20 * time.Second)
		if kept, lost := other.endOf(l.SandboxID); len(kept) != 1 || len(lost) != 0 {
			t.Errorf("its end is %+v, %+v", kept, lost)
		}
		other.want(other.lease(l.ID), sandbox.LeaseDestroyed, sandbox.EndedByRelease)
	})
}

func TestKeptWorkspacesAreBoundedAndPurged(t *testing.T) {
	repo, mirrors := privateRepository(t)
	inWorld(t, func(w *world) {
		w.bounds.Environment = 1 // of anything
		w.useMirrors(mirrors)
		w.environment(withSecret, withWorkspace(repo))
		l := w.acquire(ann)
		w.commitInside(l.SandboxID, w.workspaceOf(l.SandboxID)[0])
		w.release(ann)
		if _, err := w.keptOf(sandbox.LeaseRef{ID: l.ID}, sandbox.WorkspaceBundle); sandbox.CodeOf(err) !=
			sandbox.OutputExpired {
			t.Errorf("beyond the bound, the error is %v", err)
		}
		w.bounds.Environment = 0
		w.useMirrors(mirrors)
		l = w.acquire(ann)
		w.commitInside(l.SandboxID, w.workspaceOf(l.SandboxID)[0])
		w.release(ann)
		if _, err := w.keptOf(sandbox.LeaseRef{ID: l.ID}, sandbox.WorkspaceBundle); err != nil {
			t.Error(err)
		}
		w.cleanup = time.Hour
		w.startLoop()
		later(3 * time.Hour)
		if left := w.bucket.names(); len(left) != 0 {
			t.Errorf("the objects %q are left", left)
		}
	})
}

func TestABranchIsPushedUnderThePrefixOnly(t *testing.T) {
	repo, mirrors := privateRepository(t)
	inWorld(t, func(w *world) {
		w.useMirrors(mirrors)
		w.environment(withSecret, withWorkspace(repo))
		l := w.acquire(ann)
		ref := sandbox.LeaseRef{ID: l.ID}
		tip := w.commitInside(l.SandboxID, w.workspaceOf(l.SandboxID)[0])
		_, err := w.engine.PushWorkspace(w.Context(), ref)
		if sandbox.CodeOf(err) != sandbox.Conflict || !strings.Contains(err.Error(), "push_prefix") {
			t.Errorf("without a prefix, the error is %v", err)
		}
		w.environment(withWorkspace(repo), func(p *sandbox.PutEnvironment) {
			p.Secrets, p.Workspace.PushPrefix = []string{"token"}, "agents/"
		})
		refs := gittest.Git(t, repo.Path, nil, "for-each-ref", "--format=%(objectname) %(refname)")
		pushed, err := w.engine.PushWorkspace(w.Context(), ref)
		if err != nil || pushed.Branch != "agents/sandbox/did-plc-ann/1" || pushed.Commit != tip || pushed.URL != repo.URL {
			t.Fatalf("pushed %+v: %v", pushed, err)
		}
		want := tip + " refs/heads/agents/sandbox/did-plc-ann/1\n" + refs
		if got := gittest.Git(t, repo.Path, nil, "for-each-ref", "--format=%(objectname) %(refname)"); got != want {
			t.Errorf("the repository has\n%s\nwant\n%s", got, want)
		}
		if told := w.told(l.SandboxID); count(told, sandbox.EventWorkspacePushed) != 1 {
			t.Errorf("its events are %q", told)
		}
		w.wantNotInLedger(secretValue)
		// Commits are not pushed to another repository that the environment has since.
		other := repo.Server.Repository("other", map[string]string{"a": "one"})
		w.environment(withWorkspace(other), func(p *sandbox.PutEnvironment) {
			p.Secrets, p.Workspace.PushPrefix = []string{"token"}, "agents/"
		})
		if _, err := w.engine.PushWorkspace(w.Context(), ref); sandbox.CodeOf(err) != sandbox.Conflict {
			t.Errorf("with another repository, the error is %v", err)
		}
	})
}
