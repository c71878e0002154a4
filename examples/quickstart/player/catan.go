package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Settlers is the part of a game of Catan that one player sees.
type Settlers struct {
	// Hand counts the player's cards by resource.
	Hand map[string]int `json:"hand"`
	// Settlements are the player's own, without cities. Spots are free and within its reach.
	Settlements []Spot `json:"settlements"`
	Spots       []Spot `json:"spots"`
	// TradeRate is how many equal cards the bank takes for one; zero means 4.
	TradeRate int `json:"trade_rate"`
}

// Spot is an intersection of the board.
type Spot struct {
	ID string `json:"id"`
	// Pips is the sum of the dots on the number tokens around it: the number of throws, out of 36, in which it yields.
	Pips int `json:"pips"`
	// Resources are the resources of the hexes around it.
	Resources []string `json:"resources"`
}

// A goal is a thing to build and what it costs.
type goal struct {
	do   string
	cost map[string]int
	on   string
}

// Decide builds the best affordable thing. If there is none, it trades surplus cards for a card that the best goal
// lacks. Otherwise it waits.
func (s Settlers) Decide() Action {
	goals := s.goals()
	for _, g := range goals {
		if missing(s.Hand, g.cost) == nil {
			return Action{Do: g.do, On: g.on, Why: "the hand pays for it"}
		}
	}
	for _, g := range goals {
		if a, ok := s.trade(g); ok {
			return a
		}
	}
	return Action{Do: "end_turn", Why: "nothing can be built or traded"}
}

// goals lists what the player wants to build, best first. A city doubles the yield of a settlement, and a settlement
// adds a new one. A road only leads to spots, so the player wants one only if no spot is free.
func (s Settlers) goals() []goal {
	var goals []goal
	if best, ok := richest(s.Settlements, nil); ok {
		goals = append(goals, goal{"build_city", map[string]int{"ore": 3, "grain": 2}, best.ID})
	}
	if best, ok := richest(s.Spots, s.known()); ok {
		return append(goals,
			goal{"build_settlement", map[string]int{"brick": 1, "lumber": 1, "wool": 1, "grain": 1}, best.ID})
	}
	return append(goals, goal{"build_road", map[string]int{"brick": 1, "lumber": 1}, "towards the coast"})
}

// known returns the resources that the player's settlements already yield.
func (s Settlers) known() map[string]bool {
	known := make(map[string]bool)
	for _, settlement := range s.Settlements {
		for _, r := range settlement.Resources {
			known[r] = true
		}
	}
	return known
}

// richest returns the spot with the most pips. Each resource that is not yet known counts as two more, because a player
// without it depends on trades.
func richest(spots []Spot, known map[string]bool) (Spot, bool) {
	if len(spots) == 0 {
		return Spot{}, false
	}
	value := func(s Spot) int {
		v := s.Pips
		for _, r := range s.Resources {
			if known != nil && !known[r] {
				v += 2
			}
		}
		return v
	}
	return slices.MaxFunc(spots, func(a, b Spot) int { return cmp.Compare(value(a), value(b)) }), true
}

// trade gets a missing card of the goal by one trade with the bank, without giving up cards that the goal needs.
func (s Settlers) trade(g goal) (Action, bool) {
	rate := s.TradeRate
	if rate <= 0 {
		rate = 4
	}
	lacking := missing(s.Hand, g.cost)
	if len(lacking) == 0 {
		return Action{}, false
	}
	for _, give := range slices.Sorted(maps.Keys(s.Hand)) {
		if s.Hand[give]-g.cost[give] >= rate {
			return Action{
				Do: "trade", Give: fmt.Sprintf("%d %s", rate, give), On: lacking[0],
				Why: fmt.Sprintf("%s lacks %s", g.do, lacking[0]),
			}, true
		}
	}
	return Action{}, false
}

// missing returns the resources that the hand lacks, sorted.
func missing(hand, cost map[string]int) []string {
	var lacking []string
	for _, r := range slices.Sorted(maps.Keys(cost)) {
		if hand[r] < cost[r] {
			lacking = append(lacking, r)
		}
	}
	return lacking
}
