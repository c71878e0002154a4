package api_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const victim = "did:plc:victim"

// tenant is a caller whose token is limited to environments; the operator's token has no limit.
type tenant struct {
	*world
	*client.Client
}

// tenant creates a token and returns its holder.
func (w *world) tenant(name string, scope sandbox.Scope, environments ...string) tenant {
	w.Helper()
	return w.holderOf(w.issue(sandbox.CreateToken{Name: name, Scopes: []sandbox.Scope{scope}, Environments: environments}))
}

func (w *world) holderOf(made sandbox.CreatedToken) tenant {
	w.Helper()
	c, err := client.New(client.Config{URL: w.url, Token: string(made.Text), Attempts: 1})
	if err != nil {
		w.Fatal(err)
	}
	return tenant{world: w, Client: c}
}

// sharing creates an environment whose agents share their state with their leases in other environments.
func (t tenant) sharing(id string) {
	t.Helper()
	_, err := t.PutEnvironment(t.Context(), sandbox.PutEnvironment{ID: id, EnvironmentSpec: sandbox.EnvironmentSpec{
		Image: "player", Network: sandbox.NetworkNone, Snapshot: &sandbox.SnapshotSpec{Scope: sandbox.ScopeAgent},
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// plays acquires a lease for an agent in an environment.
func (t tenant) plays(agent, environment string) sandbox.Lease {
	t.Helper()
	got, err := t.Acquire(t.Context(), sandbox.Acquire{AgentDID: agent, EnvironmentID: environment})
	if err != nil {
		t.Fatal(err)
	}
	return got.Lease
}

func (t tenant) writes(l sandbox.Lease, text string) {
	t.Helper()
	if err := t.WriteFile(t.Context(), sandbox.LeaseRef{ID: l.ID}, sandbox.FileWrite{Path: "/data/private.txt"},
		strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
}

// reads returns the content of the agent's file, "" if there is none.
func (t tenant) reads(l sandbox.Lease) string {
	t.Helper()
	f, err := t.ReadFile(t.Context(), sandbox.LeaseRef{ID: l.ID}, sandbox.FileRead{Path: "/data/private.txt"})
	if sandbox.ReasonOf(err) == sandbox.ReasonFileNotFound {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // only read
	text, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (t tenant) releases(l sandbox.Lease) {
	t.Helper()
	if _, err := t.Release(t.Context(), sandbox.LeaseRef{ID: l.ID}); err != nil {
		t.Fatal(err)
	}
}

// remembers acquires the victim's lease and checks the state that it finds. Then it writes another state and releases
// the lease.
func (t tenant) remembers(environment, want, next string) {
	t.Helper()
	l := t.plays(victim, environment)
	if got := t.reads(l); got != want {
		t.Errorf("%s in %s finds %q in its state, want %q", victim, environment, got, want)
	}
	t.writes(l, next)
	t.releases(l)
}

func TestATenantNeitherReadsNorOverwritesTheStateOfAnothersAgent(t *testing.T) {
	t.Parallel()
	for name, putBy := range map[string][]string{
		"its own environment":                   {"tenant-b*"},
		"an environment that the operator made": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a, b := w.tenant("a", sandbox.ScopeAdmin, "tenant-a*"), w.tenant("b", sandbox.ScopeAdmin, "tenant-b*")
			a.sharing("tenant-a1")
			w.tenant("maker", sandbox.ScopeAdmin, putBy...).sharing("tenant-b1")
			a.remembers("tenant-a1", "", "key=AKIA-TENANT-A")
			b.remembers("tenant-b1", "", "poisoned by B")
			a.remembers("tenant-a1", "key=AKIA-TENANT-A", "")
		})
	}
}

func TestATenantsStatesAreListedByItsEnvironmentsAndDeletedByTheOperator(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.tenant("a", sandbox.ScopeAdmin, "tenant-a*"), w.tenant("b", sandbox.ScopeAdmin, "tenant-b*")
	operator := w.tenant("operator", sandbox.ScopeAdmin)
	a.sharing("tenant-a1")
	a.remembers("tenant-a1", "", "of a")
	key := victim + "@tenant-a*"
	own, err := a.ListSnapshots(t.Context(), sandbox.SnapshotFilter{EnvironmentID: "tenant-a1"})
	if err != nil || len(own) != 1 || own[0].Key != key {
		t.Errorf("its own states are %+v, %v", own, err)
	}
	for _, filter := range []sandbox.SnapshotFilter{{}, {AgentDID: victim}, {EnvironmentID: "tenant-a1"}} {
		if _, err := b.ListSnapshots(t.Context(), filter); sandbox.CodeOf(err) != sandbox.Forbidden {
			t.Errorf("another tenant lists %+v: %v", filter, err)
		}
	}
	for _, tenant := range []tenant{a, b} {
		if err := tenant.DeleteSnapshot(t.Context(), key); sandbox.CodeOf(err) != sandbox.Forbidden {
			t.Errorf("a tenant deletes a state: %v", err)
		}
	}
	if err := operator.DeleteSnapshot(t.Context(), key); err != nil {
		t.Error(err)
	}
	a.remembers("tenant-a1", "", "")
}

func TestTokensWithTheSameLimitShareTheStateOfAnAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	maker, games := w.tenant("maker", sandbox.ScopeAdmin), w.issue(sandbox.CreateToken{
		Name:         "games",
		Scopes:       []sandbox.Scope{sandbox.ScopeLease},
		Environments: []string{"rpg-*", "catan-*"},
	})
	maker.sharing("catan-1")
	maker.sharing("rpg-1")
	w.holderOf(games).remembers("catan-1", "", "of the first game")
	rotated, err := maker.RotateToken(t.Context(), sandbox.RotateToken{Name: "games"})
	if err != nil {
		t.Fatal(err)
	}
	w.holderOf(rotated).remembers("rpg-1", "of the first game", "of the second")
	w.tenant("another", sandbox.ScopeLease, "catan-*", "rpg-*").remembers("catan-1", "of the second", "of the third")
	w.tenant("narrow", sandbox.ScopeLease, "catan-*").remembers("catan-1", "", "")
}

// The lease of a run follows the same rule.
func TestARunHasTheSnapshotsOfItsCaller(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	operator, b := w.tenant("operator", sandbox.ScopeAdmin), w.tenant("b", sandbox.ScopeLease, "tenant-b*")
	operator.sharing("other-1")
	operator.sharing("tenant-b1")
	operator.remembers("other-1", "", "the operator's")
	res, err := b.Run(t.Context(), sandbox.RunRequest{
		EnvironmentID: "tenant-b1",
		AgentDID:      victim,
		Collect:       []string{"/data/private.txt"},
		Collected:     io.Discard,
		ExecRequest:   sandbox.ExecRequest{Command: []string{"echo"}},
	})
	if err != nil || !slices.Equal(res.Missing, []string{"/data/private.txt"}) {
		t.Errorf("a tenant's run finds the operator's file: missing are %v, %v", res.Missing, err)
	}
}

// TestARunsOwnImageNeedsTheRightToChangeItsEnvironment, and an image within the ceiling of the token.
func TestARunsOwnImageNeedsTheRightToChangeItsEnvironment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	operator := w.tenant("operator", sandbox.ScopeAdmin)
	operator.sharing("tenant-b1")
	admin, player := w.tenant("admin", sandbox.ScopeAdmin, "tenant-b*"), w.tenant("player", sandbox.ScopeLease, "tenant-b*")
	large := sandbox.SandboxChoice{Resources: sandbox.Resources{MemoryMB: 16_384}}
	for _, row := range []struct {
		caller tenant
		choice sandbox.SandboxChoice
		want   sandbox.Reason
	}{
		{player, sandbox.SandboxChoice{Image: "tools:2"}, sandbox.ReasonScopeMissing},
		{player, sandbox.SandboxChoice{Network: sandbox.NetworkNone}, ""},
		{admin, sandbox.SandboxChoice{Image: "tools:2"}, ""},
		{admin, large, sandbox.ReasonCeilingExceeded},
		{operator, large, ""},
	} {
		res, err := row.caller.Run(t.Context(), sandbox.RunRequest{
			EnvironmentID: "tenant-b1", AgentDID: victim, Choice: row.choice,
			ExecRequest: sandbox.ExecRequest{Command: []string{"echo"}},
		})
		if sandbox.ReasonOf(err) != row.want {
			t.Errorf("%+v: %v", row.choice, err)
		}
		if want := row.choice.Image; err == nil && want != "" && res.Lease.Image != want {
			t.Errorf("the run had image %s, want %s", res.Lease.Image, want)
		}
	}
}

const profile = `{"defaultAction":"SCMP_ACT_ERRNO"}`

// aboveDefaults are requests of an environment beyond the safe defaults, with the refused field.
var aboveDefaults = []struct {
	field   string
	ask     func(p *sandbox.PutEnvironment)
	ceiling sandbox.Ceiling // that allows it
}{
	{"network", func(p *sandbox.PutEnvironment) { p.Network = sandbox.NetworkFull },
		sandbox.Ceiling{Network: sandbox.NetworkFull}},
	{"confinement.allow_root", func(p *sandbox.PutEnvironment) { p.Confinement.AllowRoot = true },
		sandbox.Ceiling{Root: true}},
	{"confinement.user",
		func(p *sandbox.PutEnvironment) { p.Confinement = sandbox.Confinement{User: "1000:0", AllowRoot: true} },
		sandbox.Ceiling{Root: true}},
	{"confinement.seccomp_profile", func(p *sandbox.PutEnvironment) { p.Confinement.SeccompProfile = profile },
		sandbox.Ceiling{Seccomp: true}},
	{"confinement.runtime", func(p *sandbox.PutEnvironment) { p.Confinement.Runtime = "runsc" },
		sandbox.Ceiling{Runtimes: []string{"kata", "runsc"}}},
	{"confinement.tmp_mb",
		func(p *sandbox.PutEnvironment) { p.Resources.MemoryMB, p.Confinement.TmpMB = 2048, 513 },
		sandbox.Ceiling{TmpMB: 513}},
	{"confinement.run_mb", func(p *sandbox.PutEnvironment) { p.Confinement.RunMB = 17 }, sandbox.Ceiling{RunMB: 17}},
	{"confinement.open_files", func(p *sandbox.PutEnvironment) { p.Confinement.OpenFiles = 16385 },
		sandbox.Ceiling{OpenFiles: 16385}},
	{"resources.memory_mb", func(p *sandbox.PutEnvironment) { p.Resources.MemoryMB = 32768 },
		sandbox.Ceiling{MemoryMB: 32768}},
	{"resources.cpu_millis", func(p *sandbox.PutEnvironment) { p.Resources.CPUMillis = 2001 },
		sandbox.Ceiling{CPUMillis: 2001}},
	{"resources.pids_limit", func(p *sandbox.PutEnvironment) { p.Resources.PIDs = 257 }, sandbox.Ceiling{PIDs: 257}},
	{"resources.disk_mb", func(p *sandbox.PutEnvironment) { p.Resources.DiskMB = 10241 }, sandbox.Ceiling{DiskMB: 10241}},
	{"state.size_limit_mb", func(p *sandbox.PutEnvironment) { p.Snapshot = &sandbox.SnapshotSpec{SizeLimitMB: 257} },
		sandbox.Ceiling{SnapshotMB: 257}},
}

func puts(id string, change ...func(p *sandbox.PutEnvironment)) sandbox.PutEnvironment {
	p := sandbox.PutEnvironment{
		ID:              id,
		EnvironmentSpec: sandbox.EnvironmentSpec{Image: "player", Network: sandbox.NetworkNone},
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

// wantCeiling checks that an error names a field, and says how the operator raises its ceiling.
func wantCeiling(t *testing.T, what string, err error, field string) {
	t.Helper()
	var e *sandbox.Error
	names := func(f sandbox.Field) bool { return f.Name == field && strings.Contains(f.Problem, "ceiling") }
	if sandbox.CodeOf(err) != sandbox.Forbidden || sandbox.ReasonOf(err) != sandbox.ReasonCeilingExceeded ||
		!errors.As(err, &e) || !slices.ContainsFunc(e.Fields, names) || !strings.Contains(err.Error(), "token rotate") {
		t.Errorf("%s: %v, want that %s lies above the ceiling", what, err, field)
	}
}

func TestATenantAsksForNoMoreThanItsCeiling(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	operator, b := w.tenant("operator", sandbox.ScopeAdmin), w.tenant("b", sandbox.ScopeAdmin, "tenant-b*")
	if _, err := b.PutEnvironment(t.Context(), puts("tenant-b1")); err != nil {
		t.Fatalf("the defaults: %v", err)
	}
	for _, a := range aboveDefaults {
		for _, id := range []string{"tenant-b1", "tenant-b2"} { // one is changed, one is created
			_, err := b.PutEnvironment(t.Context(), puts(id, a.ask))
			wantCeiling(t, a.field+" of "+id, err, a.field)
		}
		if _, err := operator.PutEnvironment(t.Context(), puts("own", a.ask)); err != nil {
			t.Errorf("the operator asks for %s: %v", a.field, err)
		}
		raised := a.ceiling
		w.Pass(time.Second) // the rotation replaces the latest token of a name
		if _, err := operator.RotateToken(t.Context(),
			sandbox.RotateToken{Name: "b", Ceiling: &raised, Overlap: sandbox.Duration(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		w.Pass(time.Second)
		// A rotated token keeps its ceiling.
		next, err := operator.RotateToken(t.Context(), sandbox.RotateToken{Name: "b", Overlap: sandbox.Duration(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.holderOf(next).PutEnvironment(t.Context(), puts("tenant-b3", a.ask)); err != nil {
			t.Errorf("%s, which the ceiling allows: %v", a.field, err)
		}
	}
	_, err := b.PutEnvironment(t.Context(), puts("tenant-b1", func(p *sandbox.PutEnvironment) {
		p.Mounts = []sandbox.Mount{{Source: "/srv/a", Target: "/mnt/a"}, {Source: "/srv/b", Target: "/mnt/b", Writable: true}}
	}))
	wantCeiling(t, "a writable mount", err, "mounts[1].writable")
}

func TestATokenOfAFileHasTheDefaultCeiling(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const body = `{"image":"player","network":"full"}`
	p := w.wantProblem(w.do("PUT", "/v1/environments/catan-1", body, "Authorization", "Bearer "+w.catan), 403,
		sandbox.Forbidden, "network")
	if p.Reason != sandbox.ReasonCeilingExceeded {
		t.Errorf("it is refused for %s", p.Reason)
	}
	want[sandbox.Environment](w, w.do("PUT", "/v1/environments/catan-1", body), 200)
}

func TestACeilingBoundsEnvironmentsAndLeases(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made := w.issue(sandbox.CreateToken{
		Name:         "b",
		Scopes:       []sandbox.Scope{sandbox.ScopeAdmin},
		Environments: []string{"tenant-b*"},
		Ceiling:      sandbox.Ceiling{Environments: 2, Leases: 2},
	})
	operator, b := w.tenant("operator", sandbox.ScopeAdmin), w.holderOf(made)
	for _, id := range []string{"tenant-b1", "tenant-b2", "tenant-b1"} {
		if _, err := b.PutEnvironment(t.Context(), puts(id)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := b.PutEnvironment(t.Context(), puts("tenant-b3"))
	wantCeiling(t, "a third environment", err, "id")
	if err := b.DeleteEnvironment(t.Context(), sandbox.DeleteEnvironment{ID: "tenant-b2"}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.PutEnvironment(t.Context(), puts("tenant-b3")); err != nil {
		t.Errorf("in place of one that was deleted: %v", err)
	}
	_, err = b.PutEnvironment(t.Context(),
		puts("tenant-b1", func(p *sandbox.PutEnvironment) { p.WarmPool = &sandbox.WarmPool{Size: 3} }))
	wantCeiling(t, "a pool of three", err, "warm_pool.size")
	first := b.plays("did:plc:one", "tenant-b1")
	b.plays("did:plc:two", "tenant-b1")
	b.plays("did:plc:two", "tenant-b1") // the lease exists already
	_, err = b.Acquire(t.Context(), sandbox.Acquire{AgentDID: "did:plc:three", EnvironmentID: "tenant-b1"})
	wantCeiling(t, "a third lease", err, "environment_id")
	_, err = b.Run(t.Context(),
		sandbox.RunRequest{EnvironmentID: "tenant-b1", ExecRequest: sandbox.ExecRequest{Command: []string{"echo"}}})
	wantCeiling(t, "a run beside two leases", err, "environment_id")
	b.releases(first)
	b.plays("did:plc:three", "tenant-b1")
	operator.plays("did:plc:four", "tenant-b1")
}

func TestACeilingThatIsWrongIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, c := range map[string]struct{ body, field string }{
		"of a token for everything": {`{"name":"x","scopes":["admin"],"ceiling":{"root":true}}`, "ceiling"},
		"of a token for every pattern": {`{"name":"x","scopes":["admin"],"environments":["*"],"ceiling":{"root":true}}`,
			"ceiling"},
		"a network": {`{"name":"x","scopes":["admin"],"environments":["a*"],"ceiling":{"network":"wide"}}`,
			"ceiling.network"},
		"a size": {`{"name":"x","scopes":["admin"],"environments":["a*"],"ceiling":{"memory_mb":-1}}`,
			"ceiling.memory_mb"},
		"a runtime": {
			`{"name":"x","scopes":["admin"],"environments":["a*"],"ceiling":{"runtimes":["../x"]}}`, "ceiling.runtimes",
		},
	} {
		a := w.do("POST", "/v1/tokens", c.body)
		if a.StatusCode != 422 || !strings.Contains(a.body, c.field) {
			t.Errorf("%s is answered with %d: %s", name, a.StatusCode, a.body)
		}
	}
}
