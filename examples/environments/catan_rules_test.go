package environments_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
)

// catanGame is a fake game server of Catan: two dice, a robber, a bank, and ten points to win. The edge with a vertex's
// number leads to it. The dice roll the same numbers in every game.
type catanGame struct {
	dice    *rand.Rand
	players map[string]*catanPlayer
	// owners maps built vertices to their players, and roads maps built edges.
	owners, roads map[string]string
	robber        string
	// rolled means that the player of this turn has rolled the dice, and robbing that it must move the robber.
	rolled, robbing bool
}

// catanPlayer has the cards and buildings of a player.
type catanPlayer struct {
	hand map[string]int
	// houses and cities are vertices; a house is a settlement.
	houses, cities []string
}

// catanHex is a hex of the board.
type catanHex struct {
	resource string
	number   int
}

// pointsToWin is the number of points that wins the game.
const pointsToWin = 10

// The board: hexes, and the hexes of each vertex.
var (
	catanHexes = map[string]catanHex{
		"H1": {"brick", 6}, "H2": {"lumber", 8}, "H3": {"wool", 5}, "H4": {"grain", 9}, "H5": {"ore", 4}, "H6": {"grain", 10},
		"H7": {"ore", 8}, "H8": {"brick", 3}, "H9": {"lumber", 11},
	}
	catanVertices = map[string][]string{
		"V1": {"H1", "H2", "H3"}, "V2": {"H4", "H5", "H6"}, "V3": {"H1", "H7", "H4"}, "V4": {"H2", "H5", "H3"},
		"V5": {"H7", "H6"}, "V6": {"H8", "H9"}, "V7": {"H3", "H4"}, "V8": {"H1", "H5"}, "V9": {"H2", "H6", "H7"},
		"V10": {"H9", "H5"}, "V11": {"H8", "H3"}, "V12": {"H4", "H9"},
	}
	catanCosts = map[string]map[string]int{
		"build_road":       {"brick": 1, "lumber": 1},
		"build_settlement": {"brick": 1, "lumber": 1, "wool": 1, "grain": 1},
		"build_city":       {"ore": 3, "grain": 2},
	}
)

// newCatanGame starts a game of two players with two settlements each.
func newCatanGame(first, second string) *catanGame {
	return &catanGame{
		dice: rand.New(rand.NewPCG(7, 7)), //nolint:gosec // the same dice in each game
		players: map[string]*catanPlayer{
			first:  {hand: map[string]int{}, houses: []string{"V1", "V2"}},
			second: {hand: map[string]int{}, houses: []string{"V3", "V4"}},
		},
		owners: map[string]string{"V1": first, "V2": first, "V3": second, "V4": second},
		roads:  map[string]string{},
	}
}

// points returns the points of a player.
func (g *catanGame) points(player string) int {
	return len(g.players[player].houses) + 2*len(g.players[player].cities)
}

// state returns what the server shows to the player whose turn it is.
func (g *catanGame) state(player string) map[string]any {
	p := g.players[player]
	free := []map[string]any{}
	for _, v := range slices.Sorted(maps.Keys(catanVertices)) {
		if g.owners[v] == "" {
			free = append(free, map[string]any{"id": v, "pips": pips(v), "edge": edgeOf(v), "edge_owner": g.roads[edgeOf(v)]})
		}
	}
	return map[string]any{
		"hand": p.hand, "points": g.points(player), "settlements": p.houses, "cities": p.cities,
		"free_vertices": free, "robber": g.robber, "legal_actions": g.legal(player),
	}
}

// edgeOf returns the edge that leads to a vertex.
func edgeOf(vertex string) string { return "E" + vertex[1:] }

// pips returns in how many of 36 rolls a vertex produces.
func pips(vertex string) (n int) {
	for _, h := range catanVertices[vertex] {
		n += 6 - max(7-catanHexes[h].number, catanHexes[h].number-7)
	}
	return n
}

func (g *catanGame) legal(player string) []string {
	switch p := g.players[player]; {
	case !g.rolled:
		return []string{"roll_dice"}
	case g.robbing:
		return []string{"move_robber"}
	default:
		actions := []string{"end_turn"}
		for _, name := range slices.Sorted(maps.Keys(catanCosts)) {
			if p.has(catanCosts[name]) {
				actions = append(actions, name)
			}
		}
		for _, n := range p.hand {
			if n >= 4 {
				return append(actions, "trade_bank")
			}
		}
		return actions
	}
}

func (p *catanPlayer) has(cost map[string]int) bool {
	for resource, n := range cost {
		if p.hand[resource] < n {
			return false
		}
	}
	return true
}

func (p *catanPlayer) pay(cost map[string]int) {
	for resource, n := range cost {
		p.hand[resource] -= n
	}
}

// catanMove is an action in the agent's form.
type catanMove struct {
	Action        string
	Edge, Vertex  string
	Hex           string
	Give, Receive map[string]int
}

// play plays an action of the player whose turn it is. over means that the turn has ended.
func (g *catanGame) play(player string, action []byte) (over bool, err error) {
	var m catanMove
	if err := json.Unmarshal(action, &m); err != nil {
		return false, err
	}
	p := g.players[player]
	if !slices.Contains(g.legal(player), m.Action) {
		return false, fmt.Errorf("%s is none of the actions %v", action, g.legal(player))
	}
	switch m.Action {
	case "roll_dice":
		g.roll()
	case "move_robber":
		if _, ok := catanHexes[m.Hex]; !ok || m.Hex == g.robber {
			return false, fmt.Errorf("the robber cannot move to %q", m.Hex)
		}
		g.robber, g.robbing = m.Hex, false
	case "trade_bank":
		return false, p.trade(m)
	case "end_turn":
		g.rolled = false
		return true, nil
	default:
		if err := g.build(player, m); err != nil {
			return false, fmt.Errorf("%s: %w", action, err)
		}
		p.pay(catanCosts[m.Action])
	}
	return false, nil
}

// roll rolls the dice. Hexes with the number produce, except the robber's. A seven moves the robber.
func (g *catanGame) roll() {
	sum := 2 + g.dice.IntN(6) + g.dice.IntN(6)
	g.rolled, g.robbing = true, sum == 7
	for vertex, player := range g.owners {
		p := g.players[player]
		for _, h := range catanVertices[vertex] {
			if catanHexes[h].number == sum && h != g.robber {
				p.hand[catanHexes[h].resource]++
				if slices.Contains(p.cities, vertex) {
					p.hand[catanHexes[h].resource]++
				}
			}
		}
	}
}

func (p *catanPlayer) trade(m catanMove) error {
	if len(m.Give) != 1 || len(m.Receive) != 1 {
		return errors.New("the bank takes one resource and gives one")
	}
	for resource, n := range m.Receive {
		if n != 1 {
			return fmt.Errorf("the bank gives one %s", resource)
		}
		p.hand[resource]++
	}
	for resource, n := range m.Give {
		if n != 4 || p.hand[resource] < 4 {
			return fmt.Errorf("the bank takes 4 of a resource that the player has, not %d %s", n, resource)
		}
		p.hand[resource] -= 4
	}
	return nil
}

func (g *catanGame) build(player string, m catanMove) error {
	p := g.players[player]
	_, isVertex := catanVertices[m.Vertex]
	switch at := slices.Index(p.houses, m.Vertex); {
	case m.Action == "build_road" && len(m.Edge) > 1 && catanVertices["V"+m.Edge[1:]] != nil && g.roads[m.Edge] == "":
		g.roads[m.Edge] = player
	case m.Action == "build_settlement" && isVertex && g.owners[m.Vertex] == "" && g.roads[edgeOf(m.Vertex)] == player:
		g.owners[m.Vertex], p.houses = player, append(p.houses, m.Vertex)
	case m.Action == "build_city" && at >= 0:
		p.houses, p.cities = slices.Delete(p.houses, at, at+1), append(p.cities, m.Vertex)
	default:
		return errors.New("nothing can be built there")
	}
	return nil
}
