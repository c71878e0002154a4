package environments_test

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// Two agents play a whole game of Catan against a game server that refuses illegal moves. One agent gets its turns from
// the relay; the server calls the other one.
func TestWholeGameOfCatan(t *testing.T) {
	t.Parallel()
	if os.Getenv("SANDBOX_TEST_LONG") == "" {
		t.Skip("a whole game is played with SANDBOX_TEST_LONG=1")
	}
	w := newWorld(t, "catan")
	w.lease(ada, brin)
	w.enroll(ada)
	w.model.reply(playCatan)
	game := newCatanGame(ada, brin)
	moves, worked, winner := 0, 0, ""
	for round := 0; winner == ""; round++ {
		player := []string{ada, brin}[round%2]
		for over := false; !over && winner == ""; moves++ {
			if moves == 600 {
				t.Fatalf("after %d moves no player has won: %d and %d points", moves, game.points(ada), game.points(brin))
			}
			action := w.move(player, moves+1, game.state(player))
			var err error
			if over, err = game.play(player, action); err != nil {
				t.Fatalf("move %d of %s: %v", moves+1, player, err)
			}
			if game.points(player) >= pointsToWin {
				winner = player
			}
		}
	}
	for _, question := range w.model.questions() {
		worked = max(worked, len(seen(question)))
	}
	t.Logf("%s wins after %d moves and %d model calls", winner, moves, len(w.model.questions()))
	if worked != 2 {
		t.Errorf("an agent has worked with %d tools before an action, not with 2", worked)
	}
	w.bill(ada, brin)
	w.shownBill(ada, brin)
	w.send("game.finished", "")
	if n := w.running(); n != 0 {
		t.Errorf("%d sandboxes remain after the end of the game", n)
	}
	w.destroy()
}

// move gets one action of a player: ada's through the relay, and others' by the server's call.
func (w *world) move(player string, number int, state map[string]any) []byte {
	w.Helper()
	if player == ada {
		return w.tell(player, "game.turn.notify", number, state).Record.Action
	}
	action, err := json.Marshal(w.turn(player, state))
	must(w.T, err)
	return action
}

// catanTable is the state of a turn that the model reads.
type catanTable struct {
	Hand        map[string]int
	Settlements []string
	Free        []struct {
		ID   string
		Pips int
		Edge string
		// Owner is the owner of the edge.
		Owner string `json:"edge_owner"`
	} `json:"free_vertices"`
	Robber string
	Legal  []string `json:"legal_actions"`
}

// bestVertex prints the free vertex with the most pips that no road of another player blocks.
const bestVertex = `python3 -c '
import json, sys
table = json.load(open("/data/table.json"))
free = [v for v in table["state"]["free_vertices"] if v["edge_owner"] in ("", table["you"])]
print(max(free, key=lambda v: (v["edge_owner"] != "", v["pips"]))["id"] if free else "none")'`

// playCatan is a model that plays. Before it builds, it uses tools: it writes the table into a file, and runs a program
// that finds the best vertex.
func playCatan(question []message) answer {
	var asked struct {
		You   string
		State catanTable
	}
	if err := json.Unmarshal([]byte(question[1].Content), &asked); err != nil {
		return says("no state: " + err.Error())
	}
	switch table, results := asked.State, seen(question); {
	case slices.Contains(table.Legal, "roll_dice"):
		return uses("roll_dice", none)
	case slices.Contains(table.Legal, "move_robber"):
		for _, hex := range slices.Sorted(maps.Keys(catanHexes)) {
			if hex != table.Robber {
				return uses("move_robber", map[string]any{"hex": hex})
			}
		}
		return says("no hex")
	case len(table.Legal) == 1:
		return uses("end_turn", none)
	case len(results) == 0:
		return uses("write", map[string]any{"path": "/data/table.json", "content": question[1].Content})
	case len(results) == 1:
		return uses("bash", map[string]any{"command": bestVertex})
	default:
		return table.build(asked.You, strings.TrimSpace(results[1]))
	}
}

// build builds the best affordable thing, and trades for a missing card.
func (table catanTable) build(you, best string) answer {
	can := func(action string) bool { return slices.Contains(table.Legal, action) }
	road := false // to the best vertex
	for _, v := range table.Free {
		road = road || v.ID == best && v.Owner == you
	}
	goal := "build_settlement"
	switch {
	case len(table.Settlements) > 0:
		goal = "build_city"
	case best == "none":
		return uses("end_turn", none)
	case !road:
		goal = "build_road"
	}
	switch {
	case can("build_city") && len(table.Settlements) > 0:
		return uses("build_city", map[string]any{"vertex": table.Settlements[0], "remember": "A city is at " + table.Settlements[0]})
	case can("build_settlement") && road:
		return uses("build_settlement", map[string]any{"vertex": best})
	case can("build_road") && !road && best != "none":
		return uses("build_road", map[string]any{"edge": edgeOf(best)})
	}
	for _, missing := range slices.Sorted(maps.Keys(catanCosts[goal])) {
		for _, give := range slices.Sorted(maps.Keys(table.Hand)) {
			if table.Hand[missing] < catanCosts[goal][missing] && table.Hand[give] >= 4+catanCosts[goal][give] {
				return uses("trade_bank", map[string]any{"give": map[string]int{give: 4}, "receive": map[string]int{missing: 1}})
			}
		}
	}
	return uses("end_turn", none)
}

// shownBill checks that the guide's configuration shows the cost of each agent's sandbox and, beside it, the tokens of
// its calls.
func (w *world) shownBill(agents ...string) {
	w.Helper()
	w.terraform.Write("bill.tf", strings.Replace(shown(w.T, "terraform", "sandbox_cost"), "catan-12", w.name, 1))
	w.terraform.Run("apply", "-auto-approve", "-input=false", "-no-color")
	var bill map[string]struct {
		Sandbox string `json:"sandbox_usd"`
		Model   string `json:"model_usd"`
		Total   string `json:"total_usd"`
		Tokens  int64
	}
	out := w.terraform.Run("output", "-json", "bill")
	must(w.T, json.Unmarshal([]byte(out), &bill))
	w.Logf("the bill is %s", out)
	for _, agent := range agents {
		calls := w.model.callsOf(agent)
		if b := bill[agent]; b.Tokens != calls*(inputTokens+outputTokens) || b.Sandbox == "" || b.Model == "" ||
			b.Total == b.Sandbox || b.Total == b.Model {
			w.Errorf("the bill of %s, who has called the model %d times, is %+v", agent, calls, b)
		}
	}
}
