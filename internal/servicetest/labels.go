package servicetest

import (
	"maps"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

var labelTests = []test{
	{"LeaseHasItsLabelsAndThoseOfItsEnvironment", leaseHasItsLabelsAndThoseOfItsEnvironment},
	{"LabelsAreChecked", labelsAreChecked},
	{"LabelsFilterListsAndEvents", labelsFilterListsAndEvents},
	{"CostsAreKnownByLabel", costsAreKnownByLabel},
}

func labelled(labels map[string]string) func(p *sandbox.PutEnvironment) {
	return func(p *sandbox.PutEnvironment) { p.Labels = labels }
}

func (w *world) acquireLabelled(agent string, labels map[string]string) sandbox.Lease {
	w.Helper()
	return must(w.Service.Acquire(w.Context(), sandbox.Acquire{
		AgentDID: agent, EnvironmentID: game, Owner: owner, Settings: sandbox.LeaseSettings{Labels: labels},
	}))(w).Lease
}

func (w *world) wantLabels(l sandbox.Lease, want map[string]string) {
	w.Helper()
	if !maps.Equal(l.Labels, want) {
		w.Errorf("lease %s has the labels %v, want %v", l.ID, l.Labels, want)
	}
}

func leaseHasItsLabelsAndThoseOfItsEnvironment(w *world) {
	w.environment(labelled(map[string]string{"team": "red"}))
	w.wantLabels(w.acquireLabelled(ann, map[string]string{"seat": "north"}),
		map[string]string{"team": "red", "seat": "north"})
	w.wantLabels(w.acquire(bob), map[string]string{"team": "red"})

	_, err := w.Service.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: owner})
	w.wantError(err, sandbox.Conflict, sandbox.ReasonOtherSettings, "settings.labels")

	// Both change in place. Those of the environment change for all of its leases.
	must(w.Service.Renew(w.Context(), sandbox.Renew{
		LeaseRef: sandbox.LeaseRef{ID: annsLease},
		Settings: &sandbox.LeaseSettings{Labels: map[string]string{"seat": "south"}},
	}))(w)
	w.wantLabels(w.lease(ann), map[string]string{"team": "red", "seat": "south"})
	w.environment(labelled(map[string]string{"team": "blue", "season": "3"}))
	w.wantLabels(w.lease(ann), map[string]string{"team": "blue", "season": "3", "seat": "south"})
	w.wantLabels(w.lease(bob), map[string]string{"team": "blue", "season": "3"})
	w.environment()
	w.wantLabels(w.lease(ann), map[string]string{"seat": "south"})
}

func labelsAreChecked(w *world) {
	put := func(labels map[string]string) error {
		p := sandbox.PutEnvironment{ID: game, Owner: owner, EnvironmentSpec: sandbox.EnvironmentSpec{Image: "player"}}
		p.Labels = labels
		_, err := w.Service.PutEnvironment(w.Context(), p)
		return err
	}
	many := make(map[string]string)
	for i := range sandbox.MaxLabels + 1 {
		many["k"+strings.Repeat("x", i)] = ""
	}
	w.wantError(put(many), sandbox.Invalid, "", "labels")
	w.wantError(put(map[string]string{"a=b": "c"}), sandbox.Invalid, "", "labels.a=b")
	w.wantError(put(map[string]string{"team": "red,blue"}), sandbox.Invalid, "", "labels.team")
	w.wantError(put(map[string]string{"team": "red\n"}), sandbox.Invalid, "", "labels.team")
	w.wantError(put(map[string]string{"team": strings.Repeat("x", sandbox.MaxLabelValueBytes+1)}), sandbox.Invalid, "",
		"labels.team")

	w.environment(labelled(map[string]string{"team": "red"}))
	_, err := w.Service.Acquire(w.Context(), sandbox.Acquire{AgentDID: ann, EnvironmentID: game, Owner: owner,
		Settings: sandbox.LeaseSettings{Labels: map[string]string{"team": "blue"}}})
	w.wantError(err, sandbox.Invalid, "", "settings.labels.team")
	_, err = w.Service.ListLeases(w.Context(), sandbox.LeaseFilter{Labels: "=red"})
	w.wantError(err, sandbox.Invalid, "", "labels")
	_, err = w.Service.ListEvents(w.Context(), sandbox.EventFilter{Labels: "team,"})
	w.wantError(err, sandbox.Invalid, "", "labels")
	_, err = w.Service.Costs(w.Context(), sandbox.CostQuery{Labels: "a b"})
	w.wantError(err, sandbox.Invalid, "", "labels")
	_, err = w.Service.Costs(w.Context(), sandbox.CostQuery{GroupBy: sandbox.CostByLabel("")})
	w.wantError(err, sandbox.Invalid, "", "group_by")
}

func labelsFilterListsAndEvents(w *world) {
	w.environment(labelled(map[string]string{"team": "red"}))
	odd := `so-called "north", 'or' \ 100 %`
	odd = strings.ReplaceAll(odd, ",", ";")
	w.acquireLabelled(ann, map[string]string{"seat": odd})
	w.acquireLabelled(bob, map[string]string{"seat": "south"})
	for selector, want := range map[sandbox.LabelSelector]string{
		"":                                       ann + " " + bob,
		"team":                                   ann + " " + bob,
		"team=red,seat=south":                    bob,
		sandbox.LabelSelector("seat=" + odd):     ann,
		"team=Red":                               "",
		"seat=":                                  "",
		"season":                                 "",
		sandbox.LabelSelector("seat=" + odd[:9]): "",
		"team=red,seat=south,seat":               bob,
		"seat=%":                                 "",
	} {
		var agents, started []string
		for _, l := range must(w.Service.ListLeases(w.Context(), sandbox.LeaseFilter{Labels: selector}))(w) {
			agents = append(agents, l.AgentDID)
		}
		for _, e := range must(w.Service.ListEvents(w.Context(),
			sandbox.EventFilter{Labels: selector, Type: string(sandbox.EventAccepted)}))(w) {
			agent, _, _ := sandbox.ParseLeaseID(e.LeaseID)
			started = append(started, agent)
		}
		if got := strings.Join(agents, " "); got != want {
			w.Errorf("labels %q select the leases %q, want %q", selector, got, want)
		}
		if got := strings.Join(started, " "); got != want {
			w.Errorf("labels %q select events of %q, want %q", selector, got, want)
		}
	}
	events := must(w.Service.ListEvents(w.Context(), sandbox.EventFilter{Labels: "team=red", Type: "environment.*"}))(w)
	if len(events) != 1 || events[0].Type != sandbox.EventEnvironmentCreated {
		w.Errorf("the environment's own events are %+v", events)
	}
	events = must(w.Service.ListEvents(w.Context(), sandbox.EventFilter{Labels: "team=blue"}))(w)
	if len(events) != 0 {
		w.Errorf("nothing has team=blue, but its events are %+v", events)
	}
}

func costsAreKnownByLabel(w *world) {
	w.environment(labelled(map[string]string{"season": "3"}))
	w.acquireLabelled(ann, map[string]string{"team": "red"})
	w.acquireLabelled(bob, map[string]string{"team": "blue"})
	w.Advance(2 * 3600e9)
	must(w.Service.Release(w.Context(), sandbox.LeaseRef{ID: annsLease}))(w)
	w.Advance(3600e9)
	check := func(when string) {
		w.Helper()
		r := must(w.Service.Costs(w.Context(), sandbox.CostQuery{GroupBy: sandbox.CostByLabel("team")}))(w)
		if len(r.Rows) != 2 || r.Rows[0].Label != "blue" || r.Rows[1].Label != "red" ||
			r.Rows[0].Gross <= r.Rows[1].Gross || r.Rows[0].Gross+r.Rows[1].Gross != r.Total.Gross {
			w.Errorf("%s the costs by team are %+v", when, r.Rows)
		}
		red := must(w.Service.Costs(w.Context(), sandbox.CostQuery{Labels: "team=red,season"}))(w)
		if len(red.Rows) != 1 || red.Rows[0].AgentDID != ann || red.Total.Gross != r.Rows[len(r.Rows)-1].Gross {
			w.Errorf("%s red's costs are %+v", when, red.Rows)
		}
		none := must(w.Service.Costs(w.Context(), sandbox.CostQuery{Labels: "season=4"}))(w)
		if len(none.Rows) != 0 {
			w.Errorf("%s the costs of another season are %+v", when, none.Rows)
		}
		season := must(w.Service.Costs(w.Context(), sandbox.CostQuery{GroupBy: sandbox.CostByLabel("season")}))(w)
		if len(season.Rows) != 1 || season.Rows[0].Label != "3" || season.Total.Gross != r.Total.Gross {
			w.Errorf("%s the costs by season are %+v", when, season.Rows)
		}
	}
	check("while one plays")
	w.purge()
	check("after retention")
}
