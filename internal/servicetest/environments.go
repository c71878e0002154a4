package servicetest

import (
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var environmentTests = []test{
	{"EnvironmentKeepsWhatWasPut", environmentKeepsWhatWasPut},
	{"EnvironmentIsChanged", environmentIsChanged},
	{"EnvironmentKeepsWhatItLetsOut", environmentKeepsWhatItLetsOut},
	{"EnvironmentConflicts", environmentConflicts},
	{"EnvironmentNamesWrongFields", environmentNamesWrongFields},
	{"EnvironmentIsCheckedWithoutAnEffect", environmentIsCheckedWithoutAnEffect},
	{"UnknownEnvironmentIsNotFound", unknownEnvironmentIsNotFound},
	{"DeletingAnEnvironmentWithLeasesNeedsForce", deletingAnEnvironmentWithLeasesNeedsForce},
	{"EnvironmentCountsItsLeases", environmentCountsItsLeases},
	{"DeletedEnvironmentCanBeMadeAgain", deletedEnvironmentCanBeMadeAgain},
	{"WarmPoolIsFilledAndGivenOut", warmPoolIsFilledAndGivenOut},
	{"WarmPoolNamesWrongFields", warmPoolNamesWrongFields},
}

func environmentKeepsWhatWasPut(w *world) {
	sleep := sandbox.Duration(7 * time.Minute)
	w.environment(func(p *sandbox.PutEnvironment) {
		p.Type, p.TTL, p.SleepAfter, p.SleepMode = sandbox.TypeRPG, sandbox.Duration(3*time.Hour), &sleep, sandbox.SleepStop
		p.Resources = sandbox.Resources{MemoryMB: 512, CPUMillis: 500}
		p.Env, p.Labels = map[string]string{"LEVEL": "hard"}, map[string]string{"team": "blue"}
	})
	e := must(w.Service.GetEnvironment(w.Context(), game))(w)
	if e.ID != game || e.Owner != owner || e.Type != sandbox.TypeRPG || e.Status != sandbox.EnvironmentOpen ||
		e.Backend != sandbox.Docker || e.TTL.D() != 3*time.Hour || *e.SleepAfter != sleep ||
		e.SleepMode != sandbox.SleepStop || e.MaxLifetime != sandbox.DefaultMaxLifetime ||
		e.Env["LEVEL"] != "hard" || e.Labels["team"] != "blue" || e.Image != "player" || e.Network != sandbox.NetworkNone {
		w.Errorf("the environment reads back as %+v", e)
	}
	if want := (sandbox.Resources{MemoryMB: 512, CPUMillis: 500, PIDs: 256, DiskMB: 10240}); e.Resources != want {
		w.Errorf("resources are %+v, want %+v", e.Resources, want)
	}
	if got := strings.Join(e.ExpiryConditions, " "); got != "agent.death game.finished campaign.ended" {
		w.Errorf("conditions are %s", got)
	}
	if !e.CreatedAt.Equal(w.Now()) {
		w.Errorf("created at %v, it is %v", e.CreatedAt, w.Now())
	}
	if all := must(w.Service.ListEnvironments(w.Context()))(w); len(all) != 1 || all[0].ID != game {
		w.Errorf("the list is %+v", all)
	}
}

func environmentKeepsWhatItLetsOut(w *world) {
	w.environment(func(p *sandbox.PutEnvironment) { p.Network = "" })
	if e := must(w.Service.GetEnvironment(w.Context(), game))(w); e.Network != sandbox.NetworkRestricted ||
		!e.EgressRules().Equal(sandbox.DefaultEgress()) {
		w.Errorf("by default the network is %s and lets out %+v", e.Network, e.EgressRules())
	}
	rules := sandbox.Egress{
		Allow:        []sandbox.EgressRule{{Host: "*.example.com"}, {Host: "model.internal", Ports: []int{8080}}},
		PrivateCIDRs: []string{"10.20.0.0/16"},
	}
	for _, want := range []sandbox.Egress{rules, {Allow: []sandbox.EgressRule{}}} {
		w.environment(func(p *sandbox.PutEnvironment) { p.Network, p.Egress = sandbox.NetworkRestricted, &want })
		if e := must(w.Service.GetEnvironment(w.Context(), game))(w); e.Egress == nil || !e.Egress.Equal(want) {
			w.Errorf("it lets out %+v, want %+v", e.Egress, want)
		}
	}
	w.environment()
	if e := must(w.Service.GetEnvironment(w.Context(), game))(w); e.Network != sandbox.NetworkNone || e.Egress != nil ||
		len(e.EgressRules().Allow) != 0 {
		w.Errorf("without a network it lets out %+v", e.EgressRules())
	}
}

func environmentCountsItsLeases(w *world) {
	w.environment()
	w.environment(func(p *sandbox.PutEnvironment) { p.ID = "rpg-1" })
	w.acquire(ann)
	w.acquire("did:plc:cat")
	must(w.Service.Release(w.Context(), sandbox.LeaseRef{ID: w.acquire("did:plc:gone").ID}))(w)
	w.Remove(w.acquire(bob).SandboxID)
	w.Advance(time.Second)
	must(w.Service.Sleep(w.Context(), sandbox.LeaseRef{ID: annsLease}))(w)
	want := map[string]sandbox.LeaseCounts{game: {Ready: 1, Asleep: 1}, "rpg-1": {}}
	for _, e := range must(w.Service.ListEnvironments(w.Context()))(w) {
		if e.Leases != want[e.ID] || e.Leases.Live() != want[e.ID].Ready+want[e.ID].Asleep {
			w.Errorf("environment %s has the leases %+v, want %+v", e.ID, e.Leases, want[e.ID])
		}
		open := must(w.Service.ListDrift(w.Context(), sandbox.DriftFilter{EnvironmentID: e.ID, Status: sandbox.DriftOpen}))(w)
		if e.OpenDrift != int64(len(open)) {
			w.Errorf("environment %s has %d findings, and %d are listed", e.ID, e.OpenDrift, len(open))
		}
	}
	if e := must(w.Service.GetEnvironment(w.Context(), game))(w); e.Leases != want[game] {
		w.Errorf("read alone, it has the leases %+v, want %+v", e.Leases, want[game])
	}
}

func environmentIsChanged(w *world) {
	w.environment()
	w.acquire(ann)
	w.Advance(time.Hour)
	w.environment(func(p *sandbox.PutEnvironment) {
		p.TTL = sandbox.Duration(2 * time.Hour)
		p.Resources.MemoryMB = 1024
	})
	w.environment(func(p *sandbox.PutEnvironment) { // the same again
		p.TTL = sandbox.Duration(2 * time.Hour)
		p.Resources.MemoryMB = 1024
	})
	events := must(w.Service.ListEvents(w.Context(),
		sandbox.EventFilter{EnvironmentID: game, Type: string(sandbox.EventEnvironmentUpdated)}))(w)
	if len(events) != 1 || !strings.Contains(string(events[0].Data), `"changed":["resources","ttl"]`) {
		w.Errorf("the changes are %+v, want one that names resources and ttl", events)
	}
	l := w.lease(ann)
	if l.TTL.D() != 2*time.Hour || l.Resources.MemoryMB != 512 {
		w.Errorf("the living lease has ttl %s and %d MB; times follow its environment, size does not",
			l.TTL, l.Resources.MemoryMB)
	}
	if l := w.acquire(bob); l.Resources.MemoryMB != 1024 {
		w.Errorf("the next lease has %d MB", l.Resources.MemoryMB)
	}
}

func environmentConflicts(w *world) {
	w.environment(func(p *sandbox.PutEnvironment) { p.Epoch = 3 })
	put := func(change func(p *sandbox.PutEnvironment)) error {
		p := sandbox.PutEnvironment{
			ID:              game,
			Owner:           owner,
			EnvironmentSpec: sandbox.EnvironmentSpec{Image: "player", Network: sandbox.NetworkNone},
		}
		change(&p)
		_, err := w.Service.PutEnvironment(w.Context(), p)
		return err
	}
	w.wantError(put(func(p *sandbox.PutEnvironment) { p.CreateOnly = true }), sandbox.Conflict, sandbox.ReasonOtherOwner)
	w.wantError(put(func(p *sandbox.PutEnvironment) { p.Owner = "somebody" }), sandbox.Conflict, sandbox.ReasonOtherOwner)
	w.wantError(put(func(p *sandbox.PutEnvironment) { p.Epoch = 2 }), sandbox.Conflict, "")
	if e := must(w.Service.GetEnvironment(w.Context(), game))(w); e.Owner != owner || e.Epoch != 3 ||
		e.Type != sandbox.TypeCatan {
		w.Errorf("a refused change changed it to %+v", e)
	}
}

func environmentNamesWrongFields(w *world) {
	_, err := w.Service.PutEnvironment(w.Context(),
		sandbox.PutEnvironment{ID: "Catan 7", EnvironmentSpec: sandbox.EnvironmentSpec{Image: "player"}})
	w.wantError(err, sandbox.Invalid, "", "id")

	_, err = w.Service.PutEnvironment(w.Context(), sandbox.PutEnvironment{
		ID: game,
		EnvironmentSpec: sandbox.EnvironmentSpec{
			Type: "chess", SleepMode: "nap", Network: "open", TTL: 1, ExpiryConditions: []string{"over"},
			Resources: sandbox.Resources{MemoryMB: 1}, Env: map[string]string{"AGENT_DID": "x"},
		},
	})
	w.wantError(err, sandbox.Invalid, "", "type", "image", "network", "sleep_mode", "resources.memory_mb", "env.AGENT_DID",
		"ttl", "expiry_conditions[0]")

	_, err = w.Service.PutEnvironment(w.Context(), sandbox.PutEnvironment{
		ID: game,
		EnvironmentSpec: sandbox.EnvironmentSpec{Image: "player", Egress: &sandbox.Egress{
			Allow: []sandbox.EgressRule{{Host: "*"}, {Host: "github.com", Ports: []int{0}}}, PrivateCIDRs: []string{"0.0.0.0/0"},
		}},
	})
	w.wantError(err, sandbox.Invalid, "", "egress.allow[0].host", "egress.allow[1].ports[0]", "egress.private_cidrs[0]")
	_, err = w.Service.PutEnvironment(w.Context(), sandbox.PutEnvironment{
		ID: game,
		EnvironmentSpec: sandbox.EnvironmentSpec{
			Image: "player", Network: sandbox.NetworkNone, Egress: &sandbox.Egress{}},
	})
	w.wantError(err, sandbox.Invalid, "", "egress")
	if all := must(w.Service.ListEnvironments(w.Context()))(w); len(all) != 0 {
		w.Errorf("refused environments are listed: %+v", all)
	}
}

// environmentIsCheckedWithoutAnEffect checks each request before it is made. The check returns the request's answer,
// and changes neither the ledger nor the backend.
func environmentIsCheckedWithoutAnEffect(w *world) {
	put := func(change ...func(p *sandbox.PutEnvironment)) sandbox.PutEnvironment {
		p := sandbox.PutEnvironment{ID: game, Owner: owner,
			EnvironmentSpec: sandbox.EnvironmentSpec{Image: "player", Network: sandbox.NetworkNone}}
		for _, c := range change {
			c(&p)
		}
		return p
	}
	makes := func(p sandbox.PutEnvironment) {
		w.Helper()
		w.checksAs(p, nil)
		w.checksAs(p, nil) // the first check did not change p
		must(w.Service.PutEnvironment(w.Context(), p))(w)
	}
	refuses := func(p sandbox.PutEnvironment) {
		w.Helper()
		_, err := w.Service.PutEnvironment(w.Context(), p)
		if err == nil {
			w.Fatalf("%+v is not refused", p)
		}
		w.checksAs(p, err)
	}
	refused := []func(p *sandbox.PutEnvironment){
		func(p *sandbox.PutEnvironment) { p.ID = "Catan 7" },
		func(p *sandbox.PutEnvironment) { p.Image, p.TTL = "", 1 },
		func(p *sandbox.PutEnvironment) { p.Backend = sandbox.Cloudflare }, // not configured here
		func(p *sandbox.PutEnvironment) { p.Mounts = []sandbox.Mount{{Source: "/maps", Target: "/maps"}} },
		func(p *sandbox.PutEnvironment) {
			p.Copies = []sandbox.Copy{{Source: "/maps", Target: "/workspace/maps"}}
		},
		func(p *sandbox.PutEnvironment) { p.EnvPassthrough = []string{"SUITE_IS_NOT_SET"} },
		func(p *sandbox.PutEnvironment) {
			p.Workspace = &sandbox.Workspace{Git: &sandbox.GitSource{URL: "https://nowhere.invalid/game.git"}}
		},
		func(p *sandbox.PutEnvironment) {
			p.Archives = []sandbox.Archive{{URL: "https://nowhere.invalid/maps.tar", Target: "/workspace/maps",
				SHA256: strings.Repeat("a", 64)}}
		},
		func(p *sandbox.PutEnvironment) { p.Instance = "another" },
		with(nil, "token"), // it never had a value
		with(secrets{"token": ""}),
	}
	for _, change := range refused {
		refuses(put(change))
	}
	makes(put(func(p *sandbox.PutEnvironment) { p.CreateOnly, p.Epoch = true, 3 }))
	for _, change := range append(refused,
		func(p *sandbox.PutEnvironment) { p.CreateOnly = true },
		func(p *sandbox.PutEnvironment) { p.Owner = "another" },
		func(p *sandbox.PutEnvironment) { p.Epoch = 2 },
	) {
		refuses(put(change))
	}
	makes(put(with(secrets{"token": "hunter2"})))
	makes(put(with(nil, "token"), func(p *sandbox.PutEnvironment) { p.TTL = sandbox.Duration(time.Hour) }))
}

// checksAs checks that CheckEnvironment returns the same error as PutEnvironment, and changes nothing.
func (w *world) checksAs(p sandbox.PutEnvironment, want error) {
	w.Helper()
	before := w.seen()
	err := w.Service.CheckEnvironment(w.Context(), p)
	if want == nil && err != nil || want != nil && (err == nil || err.Error() != want.Error() ||
		sandbox.CodeOf(err) != sandbox.CodeOf(want) || sandbox.ReasonOf(err) != sandbox.ReasonOf(want)) {
		w.Errorf("the check of %+v returns %v, the request %v", p, err, want)
	}
	if diff := cmp.Diff(before, w.seen()); diff != "" {
		w.Errorf("the check of %+v changed (-before +after):\n%s", p, diff)
	}
}

// seen returns everything that a check could change.
func (w *world) seen() (all struct {
	Environments         []sandbox.Environment
	Events               []sandbox.Event
	Provisioned, Running int
}) {
	all.Environments = must(w.Service.ListEnvironments(w.Context()))(w)
	all.Events = must(w.Service.ListEvents(w.Context(), sandbox.EventFilter{}))(w)
	all.Provisioned, all.Running = w.Provisioned(), w.Running()
	return all
}

func unknownEnvironmentIsNotFound(w *world) {
	for _, id := range []string{game, "a/b", "%2F", "..", "?", "#", ""} {
		_, err := w.Service.GetEnvironment(w.Context(), id)
		w.wantError(err, sandbox.NotFound, "")
	}
	_, err := w.Service.ReopenEnvironment(w.Context(), game)
	w.wantError(err, sandbox.NotFound, "")
	w.wantError(w.Service.DeleteEnvironment(w.Context(), sandbox.DeleteEnvironment{ID: game}), sandbox.NotFound, "")
	_, err = w.Service.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game})
	w.wantError(err, sandbox.NotFound, "")
}

func deletingAnEnvironmentWithLeasesNeedsForce(w *world) {
	made := w.environment()
	w.acquire(ann)
	w.acquire(bob)
	err := w.Service.DeleteEnvironment(w.Context(), sandbox.DeleteEnvironment{ID: game})
	w.wantError(err, sandbox.Conflict, sandbox.ReasonActiveLeases)
	for _, agent := range []string{ann, bob} {
		if err != nil && !strings.Contains(err.Error(), sandbox.LeaseID(agent, game)) {
			w.Errorf("the error does not name the lease of %s: %v", agent, err)
		}
		w.wantLease(w.lease(agent), 1, sandbox.LeaseActive, "")
	}
	err = w.Service.DeleteEnvironment(w.Context(), sandbox.DeleteEnvironment{ID: game, Owner: "another", Force: true})
	w.wantError(err, sandbox.Conflict, sandbox.ReasonOtherOwner)
	w.wantLease(w.lease(ann), 1, sandbox.LeaseActive, "")
	for range 2 { // destroyed is success
		if err := w.Service.DeleteEnvironment(w.Context(),
			sandbox.DeleteEnvironment{ID: game, Owner: made.Owner, Force: true}); err != nil {
			w.Fatal(err)
		}
	}
	w.wantLease(w.lease(ann), 1, sandbox.LeaseDestroyed, sandbox.EndedByEnvironment)
	if n := w.Running(); n != 0 {
		w.Errorf("%d sandboxes are left", n)
	}
	if e := must(w.Service.GetEnvironment(w.Context(), game))(w); e.Status != sandbox.EnvironmentDestroyed {
		w.Errorf("the environment is %s", e.Status)
	}
	if all := must(w.Service.ListEnvironments(w.Context()))(w); len(all) != 0 {
		w.Errorf("a destroyed environment is listed: %+v", all)
	}
	_, err = w.Service.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: owner})
	w.wantError(err, sandbox.NotFound, "")
}

func deletedEnvironmentCanBeMadeAgain(w *world) {
	w.environment()
	w.acquire(ann)
	if err := w.Service.DeleteEnvironment(w.Context(), sandbox.DeleteEnvironment{ID: game, Force: true}); err != nil {
		w.Fatal(err)
	}
	w.environment(func(p *sandbox.PutEnvironment) { p.CreateOnly, p.Owner = true, "somebody" })
	l := must(w.Service.Acquire(w.Context(),
		sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: "somebody"}))(w).Lease
	w.wantLease(l, 2, sandbox.LeaseActive, "")
}

func warmPoolIsFilledAndGivenOut(w *world) {
	e := w.environment(func(p *sandbox.PutEnvironment) { p.WarmPool = &sandbox.WarmPool{Size: 2} })
	if e.WarmPool == nil || e.WarmPool.TTL != sandbox.DefaultPoolTTL ||
		e.WarmPool.Mode != sandbox.PoolPaused || e.Pool == nil {
		w.Fatalf("the pool reads back as %+v, %+v", e.WarmPool, e.Pool)
	}
	w.Advance(time.Minute)
	if e = must(w.Service.GetEnvironment(w.Context(), game))(w); e.Pool.Ready != 2 ||
		e.Pool.Pending != 0 || w.Running() != 2 {
		w.Errorf("of 2 sandboxes %+v wait, and %d exist", e.Pool, w.Running())
	}
	if leases := must(w.Service.ListLeases(w.Context(), sandbox.LeaseFilter{}))(w); len(leases) != 0 {
		w.Errorf("the waiting sandbox shows as a lease: %+v", leases)
	}
	l := w.acquire(ann)
	w.wantLease(l, 1, sandbox.LeaseActive, "")
	events := must(w.Service.ListEvents(w.Context(), sandbox.EventFilter{SandboxID: l.SandboxID}))(w)
	if last := events[len(events)-1]; last.Type != sandbox.EventReady || last.LeaseID != l.ID ||
		string(last.Data) != `{"from_pool":true}` {
		w.Errorf("the last event is %s of %s: %s", last.Type, last.LeaseID, last.Data)
	}
	w.Advance(time.Minute)
	if all := must(w.Service.ListEnvironments(w.Context()))(w); all[0].Pool == nil ||
		all[0].Pool.Ready != 2 || w.Running() != 3 {
		w.Errorf("after an acquire %+v wait, and %d sandboxes exist", all[0].Pool, w.Running())
	}
}

func warmPoolNamesWrongFields(w *world) {
	_, err := w.Service.PutEnvironment(w.Context(), sandbox.PutEnvironment{
		ID:    game,
		Owner: owner,
		EnvironmentSpec: sandbox.EnvironmentSpec{
			Image:    "player",
			Network:  sandbox.NetworkNone,
			WarmPool: &sandbox.WarmPool{Size: 100, MaxSize: 99, Mode: "awake", TTL: sandbox.Duration(time.Second)},
		},
	})
	w.wantError(err, sandbox.Invalid, "", "warm_pool.max_size", "warm_pool.mode", "warm_pool.ttl")
}
