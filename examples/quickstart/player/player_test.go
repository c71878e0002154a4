package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestCatanTurns(t *testing.T) {
	t.Parallel()
	spots :=
		`"spots": [{"id": "A", "pips": 9, "resources": ["wool"]}, {"id": "B", "pips": 8, "resources": ["ore", "grain"]}]`
	own :=
		`"settlements": [{"id": "C", "pips": 7, "resources": ["wool"]}, {"id": "D", "pips": 10, "resources": ["lumber"]}]`
	for name, c := range map[string]struct{ state, do, on, give string }{
		"a city comes first, on the best settlement": {
			`{"hand": {"ore": 3, "grain": 3, "brick": 1, "lumber": 1, "wool": 1}, ` + own + `, ` + spots + `}`, "build_city",
			"D", "",
		},
		"new resources make a spot worth more": {`{"hand": {"grain": 1, "brick": 1, "lumber": 1, "wool": 1}, ` +
			own + `, ` + spots + `}`, "build_settlement", "B", ""},
		"a road is built when no spot is free": {`{"hand": {"brick": 1, "lumber": 2}}`, "build_road",
			"towards the coast", ""},
		"surplus is traded for what is missing": {`{"hand": {"brick": 1, "lumber": 1, "wool": 5}, ` + spots + `}`,
			"trade", "grain", "4 wool"},
		"a harbour trades cheaper": {
			`{"hand": {"brick": 1, "lumber": 1, "wool": 3}, "trade_rate": 2, ` + spots + `}`, "trade", "grain", "2 wool",
		},
		"cards that the goal needs are not given away": {`{"hand": {"brick": 4, "lumber": 1, "grain": 1}, ` + spots + `}`,
			"end_turn", "", ""},
		"with an empty hand there is nothing to be done": {`{"hand": {}}`, "end_turn", "", ""},
	} {
		a := play(t, "catan", c.state)
		if a.Do != c.do || a.On != c.on || a.Give != c.give {
			t.Errorf("%s: got %+v", name, a)
		}
	}
}

func TestRPGTurns(t *testing.T) {
	t.Parallel()
	hero := `"max_hp": 20, "attack": 5, "position": [2, 2], "exit": [0, 2]`
	orc := `{"name": "orc", "hp": 12, "attack": 4, "position": [2, 3]}`
	rat := `{"name": "rat", "hp": 3, "attack": 2, "position": [1, 2]}`
	far := `{"name": "wolf", "hp": 8, "attack": 3, "position": [2, 6]}`
	for name, c := range map[string]struct{ state, do, on string }{
		"one blow is struck where it ends an enemy": {`{"hp": 20, ` + hero + `, "enemies": [` + orc + `, ` + rat + `]}`,
			"attack", "rat"},
		"the weakest in reach is fought": {`{"hp": 20, ` + hero + `, "enemies": [` + orc + `]}`, "attack",
			"orc"},
		"a deadly blow is answered with a potion": {
			`{"hp": 4, ` + hero + `, "inventory": {"potion": 1}, "enemies": [` + orc + `]}`, "drink", "potion",
		},
		"without a potion the hero flees":             {`{"hp": 4, ` + hero + `, "enemies": [` + orc + `]}`, "move", "1,2"},
		"a killing blow may come before a deadly one": {`{"hp": 2, ` + hero + `, "enemies": [` + rat + `]}`, "attack", "rat"},
		"a hurt hero drinks while no enemy is near": {
			`{"hp": 6, ` + hero + `, "inventory": {"potion": 1}, "enemies": [` + far + `]}`, "drink", "potion",
		},
		"a healthy hero closes in": {`{"hp": 15, ` + hero + `, "enemies": [` + far + `]}`, "move", "2,3"},
		"a won fight is left":      {`{"hp": 15, ` + hero + `}`, "move", "1,2"},
		"at the exit the hero leaves": {`{"hp": 15, "max_hp": 20, "position": [0, 0], "exit": [0, 0]}`,
			"leave", ""},
	} {
		a := play(t, "rpg", c.state)
		if a.Do != c.do || a.On != c.on {
			t.Errorf("%s: got %+v", name, a)
		}
	}
}

func TestAnActionNamesItsAgentAndReason(t *testing.T) {
	t.Parallel()
	a := play(t, "catan", `{}`)
	if a.Agent != "did:plc:ada" || a.Game != "catan" || a.Why == "" {
		t.Errorf("action = %+v", a)
	}
}

func TestWhatIsNoTurnIsRefused(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		``, `{`, `{"game": "chess", "state": {}}`, `{"game": "catan", "state": []}`, `{"game": "rpg", "state": 1}`,
	} {
		var out strings.Builder
		if err := takeTurn(strings.NewReader(in), &out, "did:plc:ada"); err == nil || out.Len() > 0 {
			t.Errorf("%q: error %v, output %q", in, err, out.String())
		}
	}
}

func play(t *testing.T, game, state string) Action {
	t.Helper()
	var out strings.Builder
	in := strings.NewReader(`{"game": "` + game + `", "state": ` + state + `}`)
	if err := takeTurn(in, &out, "did:plc:ada"); err != nil {
		t.Fatal(err)
	}
	var a Action
	if err := json.Unmarshal([]byte(out.String()), &a); err != nil {
		t.Fatal(err)
	}
	return a
}
