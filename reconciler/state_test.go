package reconciler_test

import (
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/executor/docker/dockertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// keeping makes an environment keep state, with a checkpoint a second after a change.
func keeping(p *sandbox.PutEnvironment) {
	every := sandbox.Duration(time.Second)
	p.Type, p.Snapshot = sandbox.TypeRPG, &sandbox.SnapshotSpec{CheckpointEvery: &every}
}

// remember makes an agent write a note for the next generation.
func (w *world) remember(lease, what string) {
	w.Helper()
	w.exec(lease, "sh", "-ec",
		`mkdir -p /data/memory; echo "$0" > /data/memory/day; chmod 640 /data/memory/day; ln -sf memory/day /data/latest`,
		what)
}

// wantRemembered acquires a lease, and checks that the note is there.
func (w *world) wantRemembered(agent string, generation int64, what string) sandbox.Lease {
	w.Helper()
	l := w.acquire(agent, "rpg")
	if got := w.exec(l.ID, "sh", "-c", "cat /data/latest; stat -c '%a' /data/memory/day; [ -O "+
		"/data/memory/day ] && echo own"); got != what+"\n640\nown\n" || l.Generation != generation {
		w.Errorf("generation %d finds %q, want %q in generation %d", l.Generation, got, what, generation)
	}
	return l
}

// container returns the name of a lease's container.
func (w *world) container(l sandbox.Lease) string {
	w.Helper()
	return strings.TrimSpace(w.docker("ps", "-a", "--format", "{{.Names}}",
		"--filter", "label=io.sandbox-lease.sandbox="+l.SandboxID))
}

func (w *world) awaitCheckpoint(lease string) {
	w.Helper()
	w.eventually("the state is saved", func() bool {
		s := w.lease(lease).Snapshot
		return s != nil && !s.SavedAt.IsZero() && s.UnsavedSince.IsZero()
	})
}

func TestStateGoesFromOneGenerationToTheNext(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.environment("rpg", keeping)
	l := w.acquire(agent(1), "rpg")
	w.remember(l.ID, "it rained")
	w.post("msg_1", sandbox.Condition{
		Type:      "agent.death",
		Timestamp: time.Now(),
		Data:      sandbox.ConditionData{EnvironmentID: "rpg", AgentDID: agent(1)},
	})
	l = w.wantRemembered(agent(1), 2, "it rained")

	// Saved state outlives the sandbox, its volumes, and the reconciler.
	w.remember(l.ID, "it snowed")
	w.awaitCheckpoint(l.ID)
	w.kill()
	name := w.container(l)
	w.docker("rm", "-f", name)
	w.docker("volume", "rm", name+"-data", name+"-workspace")
	w.start()
	w.eventually("the sandbox is missed", func() bool { return w.lease(l.ID).Status == sandbox.LeaseDestroyed })
	w.wantRemembered(agent(1), 3, "it snowed")
}

func TestSandboxThatIsKilledContinuesWithItsFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.environment("rpg", keeping, func(p *sandbox.PutEnvironment) {
		never := sandbox.Duration(0)
		p.Snapshot.CheckpointEvery = &never
	})
	l := w.acquire(agent(1), "rpg")
	w.remember(l.ID, "the deadline")
	w.docker("kill", w.container(l))
	w.eventually("it was started again", func() bool {
		is := w.lease(l.ID)
		return is.ErrorCode == sandbox.ReasonCrashed && is.SandboxState == sandbox.SandboxReady
	})
	w.wantRemembered(agent(1), 1, "the deadline")
	// After another kill, a release saves the content of its disk, whether or not it was restarted meanwhile.
	w.docker("kill", w.container(l))
	if _, err := w.service.Release(w.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
		t.Fatal(err)
	}
	w.wantRemembered(agent(1), 2, "the deadline")
}

// savingSteps are the calls to the engine that save state, during the lease and at its end.
var savingSteps = []step{
	{"freeze it for a checkpoint", regexp.MustCompile(`^POST .*/containers/[^/]+/pause$`)},
	{"read /data", regexp.MustCompile(`^GET .*/containers/[^/]+/archive$`)},
	{"let it go on", regexp.MustCompile(`^POST .*/containers/[^/]+/unpause$`)},
}

func TestStateSurvivesAReconcilerThatIsKilledWhileItSaves(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		killWhileItSaves(newProxiedWorld(t))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		states := t.TempDir()
		killWhileItSaves(newProxiedWorld(t,
			func(c *reconciler.Config) { c.LedgerURL, c.SnapshotURL = postgrestest.New(t), "file://"+states }))
	})
}

func killWhileItSaves(w *world, proxy *dockertest.Proxy) {
	w.Helper()
	w.environment("rpg", keeping)
	n := 0
	for _, s := range savingSteps {
		for _, after := range []bool{false, true} {
			n++
			l := w.acquire(agent(n), "rpg")
			hit := w.killAt(proxy, s, after)
			w.remember(l.ID, s.name)
			select {
			case <-hit:
			case <-time.After(time.Minute):
				w.Fatalf("%s: it was never done", s.name)
			}
			proxy.Set(nil)
			w.start()
			if got := w.exec(l.ID, "cat", "/data/latest"); got != s.name+"\n" {
				w.Errorf("%s, done: %t: the sandbox says %q", s.name, after, got)
			}
			if _, err := w.service.Release(w.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
				w.Fatal(err)
			}
			w.wantRemembered(agent(n), 2, s.name)
		}
	}
}

func TestASandboxWhoseStateCannotBeSavedIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "")
	w.environment("rpg", keeping)
	dir := filepath.Join(filepath.Dir(strings.TrimPrefix(w.config.LedgerURL, "sqlite://")), "state")
	if err := os.Rename(dir, dir+".unmounted"); err != nil {
		t.Fatal(err)
	}
	l := w.acquire(agent(1), "rpg")
	w.remember(l.ID, "it rained")
	if _, err := w.service.Release(t.Context(), sandbox.LeaseRef{ID: l.ID}); sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("releasing a lease whose state cannot be saved: %v", err)
	}
	w.eventually("the lease says what is wrong", func() bool {
		s := w.lease(l.ID).Snapshot
		return strings.Contains(s.Error, "the bucket is not there") && !s.FailingSince.IsZero()
	})
	if n := w.containers(); n != 1 {
		t.Errorf("there are %d containers while the state is not saved", n)
	}
	if err := os.Rename(dir+".unmounted", dir); err != nil {
		t.Fatal(err)
	}
	w.eventually("it is saved and gone", func() bool { return w.lease(l.ID).Status == sandbox.LeaseDestroyed })
	w.wantRemembered(agent(1), 2, "it rained")
}

// TestReconcilersOnPostgreSQLShareABucket: other reconcilers could not read a directory of one machine.
func TestReconcilersOnPostgreSQLShareABucket(t *testing.T) {
	backend := s3mem.New()
	if err := backend.CreateBucket("kept"); err != nil {
		t.Fatal(err)
	}
	s3 := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(s3.Close)
	w := newWorld(t, "", onPostgreSQL(t))
	p := sandbox.PutEnvironment{
		ID:              "rpg",
		EnvironmentSpec: sandbox.EnvironmentSpec{Type: sandbox.TypeRPG, Image: w.image, Network: sandbox.NetworkNone},
	}
	keeping(&p)
	_, err := w.service.PutEnvironment(t.Context(), p)
	if sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "--state-url") {
		t.Errorf("an environment that keeps state, without a bucket: %v", err)
	}
	w.kill()
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	w.config.SnapshotURL = "s3://kept?region=auto&use_path_style=true&endpoint=" + url.QueryEscape(s3.URL)
	w.start()
	w.environment("rpg", keeping)
	l := w.acquire(agent(1), "rpg")
	w.remember(l.ID, "it rained")
	if _, err := w.service.Release(t.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
		t.Fatal(err)
	}
	w.eventually("it is saved and gone", func() bool { return w.lease(l.ID).Status == sandbox.LeaseDestroyed })
	w.join("").wantRemembered(agent(1), 2, "it rained")
}
