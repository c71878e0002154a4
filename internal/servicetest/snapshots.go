package servicetest

import (
	"archive/tar"
	"bytes"
	"io"
	"strings"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var snapshotTests = []test{
	{"StateGoesToTheNextGeneration", stateGoesOn},
	{"AnAgentsStateGoesToItsOtherEnvironments", stateGoesElsewhere},
	{"StatesAreListedAndDeleted", statesAreListedAndDeleted},
	{"StateSettingsThatAreWrongAreNamed", stateSettingsAreChecked},
}

func keepsState(p *sandbox.PutEnvironment) {
	rpg(p)
	p.Snapshot = &sandbox.SnapshotSpec{}
	p.InitialData = map[string]string{"character.json": `{"level":1}`}
	p.Skills = map[string]string{"trade": "Buy low."}
}

// put writes a file into ann's sandbox. read returns one, "" if it does not exist.
func (w *world) put(dir, name, text string) {
	w.Helper()
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	if err := t.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg,
		Name:     name,
		Mode:     0o644,
		Size:     int64(len(text)),
	}); err != nil {
		w.Fatal(err)
	}
	_, _ = io.WriteString(t, text)
	_ = t.Close() // a buffer never fails
	if err := w.Service.WriteFiles(w.Context(), sandbox.LeaseRef{ID: annsLease}, dir, &b); err != nil {
		w.Fatal(err)
	}
}

func (w *world) read(path string) string {
	w.Helper()
	stream, err := w.Service.ReadFiles(w.Context(), sandbox.LeaseRef{ID: annsLease}, path)
	if sandbox.ReasonOf(err) == sandbox.ReasonFileNotFound {
		return ""
	}
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	t := tar.NewReader(stream)
	if _, err := t.Next(); err != nil {
		w.Fatal(err)
	}
	return string(must(io.ReadAll(t))(w))
}

func stateGoesOn(w *world) {
	env := w.environment(keepsState)
	if s := env.Snapshot; s.Scope != sandbox.ScopeAgentEnvironment ||
		*s.CheckpointEvery != sandbox.DefaultCheckpointEvery || s.OnPersistFailure != sandbox.PersistRetry ||
		s.RetryFor != sandbox.DefaultRetryFor || s.SizeLimitMB != sandbox.DefaultSnapshotLimitMB {
		w.Errorf("the defaults are %+v", s)
	}
	first := w.acquire(ann)
	if first.Snapshot == nil || first.Snapshot.Role != sandbox.RoleHolder || first.Snapshot.RestoredFrom != nil {
		w.Errorf("the first generation's state is %+v", first.Snapshot)
	}
	if got := w.read("/data/character.json"); got != `{"level":1}` {
		w.Errorf("it begins with the character %q", got)
	}
	w.put("/data", "character.json", `{"level":2}`)
	w.Advance(time.Second)
	w.deliver("agent.death", func(c *sandbox.Condition) { c.Data.AgentDID = ann })
	w.Advance(time.Second)
	if ended := w.lease(ann); ended.Status != sandbox.LeaseDestroyed || ended.Snapshot.Role != sandbox.RoleDone ||
		ended.Snapshot.SavedAt.IsZero() {
		w.Errorf("the ended lease is %s, %+v", ended.Status, ended.Snapshot)
	}
	next := w.acquire(ann)
	if from := next.Snapshot.RestoredFrom; from == nil || from.SandboxID != first.SandboxID || from.Generation != 1 {
		w.Errorf("the next generation begins with %+v", from)
	}
	if got := w.read("/data/character.json"); got != `{"level":2}` {
		w.Errorf("the next generation's character is %q", got)
	}
	if got := w.read("/data/skills/trade/prompt.md"); got != "Buy low." {
		w.Errorf("the skill is %q", got)
	}
}

// The suite's caller may use all environments.
func stateGoesElsewhere(w *world) {
	const other = "rpg-8"
	ofAgents := func(p *sandbox.PutEnvironment) {
		keepsState(p)
		p.Snapshot.Scope = sandbox.ScopeAgent
	}
	w.environment(ofAgents)
	w.environment(ofAgents, func(p *sandbox.PutEnvironment) { p.ID = other })
	first := w.acquire(ann)
	if first.Snapshot == nil || first.Snapshot.Key != ann {
		w.Fatalf("the state is %+v", first.Snapshot)
	}
	w.put("/data", "character.json", `{"level":3}`)
	must(w.Service.Release(w.Context(), sandbox.LeaseRef{ID: first.ID}))(w)
	next := must(w.Service.Acquire(w.Context(),
		sandbox.Acquire{AgentDID: ann, EnvironmentID: other, Owner: owner}))(w).Lease
	if from := next.Snapshot.RestoredFrom; next.Snapshot.Key != ann || from == nil || from.SandboxID != first.SandboxID ||
		from.EnvironmentID != game {
		w.Errorf("elsewhere the state is %+v", next.Snapshot)
	}
}

func statesAreListedAndDeleted(w *world) {
	w.environment(keepsState)
	w.acquire(ann)
	must(w.Service.Release(w.Context(), sandbox.LeaseRef{ID: annsLease}))(w)
	all := must(w.Service.ListSnapshots(w.Context(), sandbox.SnapshotFilter{}))(w)
	if len(all) != 1 || all[0].Key != annsLease || all[0].Files != 2 || all[0].AgentDID != ann ||
		all[0].EnvironmentID != game {
		w.Fatalf("the saved states are %+v", all)
	}
	for _, f := range []sandbox.SnapshotFilter{{AgentDID: bob}, {EnvironmentID: "other"}, {After: annsLease}} {
		if some := must(w.Service.ListSnapshots(w.Context(), f))(w); len(some) != 0 {
			w.Errorf("%+v selects %+v", f, some)
		}
	}
	w.acquire(ann)
	if err := w.Service.DeleteSnapshot(w.Context(), annsLease); sandbox.CodeOf(err) != sandbox.Conflict {
		w.Errorf("deleting a state that is in use: %v", err)
	}
	w.put("/data", "character.json", `{"level":9}`)
	must(w.Service.Release(w.Context(), sandbox.LeaseRef{ID: annsLease}))(w)
	if err := w.Service.DeleteSnapshot(w.Context(), annsLease); err != nil {
		w.Fatal(err)
	}
	if err := w.Service.DeleteSnapshot(w.Context(), annsLease); sandbox.CodeOf(err) != sandbox.NotFound {
		w.Errorf("deleting a missing state: %v", err)
	}
	w.acquire(ann)
	if got := w.read("/data/character.json"); got != `{"level":1}` {
		w.Errorf("without a saved state it begins with %q", got)
	}
}

func stateSettingsAreChecked(w *world) {
	short := sandbox.Duration(time.Millisecond)
	_, err := w.Service.PutEnvironment(w.Context(), sandbox.PutEnvironment{
		ID:    game,
		Owner: owner,
		EnvironmentSpec: sandbox.EnvironmentSpec{
			Type: sandbox.TypeRPG, Image: "player", Network: sandbox.NetworkNone,
			Snapshot: &sandbox.SnapshotSpec{
				Scope:            "world",
				CheckpointEvery:  &short,
				OnPersistFailure: "panic",
				RetryFor:         sandbox.Duration(1000 * time.Hour),
				SizeLimitMB:      20000,
			},
			InitialData: map[string]string{
				"../passwd": "",
				"memory":    "",
				"a":         "",
				"a/b":       "",
				"big":       strings.Repeat("x", sandbox.MaxInitialDataBytes),
			},
			Skills: map[string]string{"Trade Skill": ""},
		},
	})
	w.wantError(err, sandbox.Invalid, "", "state.scope",
		"state.checkpoint_every", "state.on_persist_failure", "state.retry_for", "state.size_limit_mb",
		"initial_state.../passwd", "initial_state.a/b", "initial_state.memory", "skills.Trade Skill", "initial_state")
}
