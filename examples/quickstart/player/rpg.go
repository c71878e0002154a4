package main

import (
	"cmp"
	"fmt"
	"slices"
)

// Encounter is the part of a fight on a grid that one hero sees.
type Encounter struct {
	HP        int            `json:"hp"`
	MaxHP     int            `json:"max_hp"`
	Attack    int            `json:"attack"`
	Position  Position       `json:"position"`
	Inventory map[string]int `json:"inventory"`
	Enemies   []Enemy        `json:"enemies"`
	// Exit is the square through which a hero can leave the fight.
	Exit Position `json:"exit"`
}

// Position is a square of the grid, column and row.
type Position [2]int

// Enemy is an opponent of the hero.
type Enemy struct {
	Name     string   `json:"name"`
	HP       int      `json:"hp"`
	Attack   int      `json:"attack"`
	Position Position `json:"position"`
}

// Decide kills an enemy if it can, then avoids death, then attacks, then approaches.
func (e Encounter) Decide() Action {
	near := e.adjacent()
	if len(near) > 0 {
		weakest := slices.MinFunc(near, func(a, b Enemy) int { return cmp.Compare(a.HP, b.HP) })
		danger := damage(near)
		switch {
		case weakest.HP <= e.Attack && danger-weakest.Attack < e.HP:
			return Action{Do: "attack", On: weakest.Name, Why: "one blow ends it"}
		case danger >= e.HP:
			return e.survive(danger)
		default:
			return Action{Do: "attack", On: weakest.Name, Why: "it is the weakest in reach"}
		}
	}
	if e.HP*3 < e.MaxHP && e.Inventory["potion"] > 0 {
		return Action{Do: "drink", On: "potion", Why: "nobody is in reach and less than a third of health is left"}
	}
	if len(e.Enemies) == 0 {
		return e.walk(e.Exit, "the fight is over")
	}
	nearest := slices.MinFunc(e.Enemies, func(a, b Enemy) int {
		return cmp.Compare(distance(e.Position, a.Position), distance(e.Position, b.Position))
	})
	return e.walk(nearest.Position, nearest.Name+" is the nearest enemy")
}

// survive returns the action of a hero whom the enemies in reach would kill.
func (e Encounter) survive(danger int) Action {
	if e.Inventory["potion"] > 0 {
		return Action{Do: "drink", On: "potion", Why: fmt.Sprintf("%d damage threatens %d health", danger, e.HP)}
	}
	return e.walk(e.Exit, "staying would be death")
}

// walk takes one step, along the longer side first.
func (e Encounter) walk(to Position, why string) Action {
	step := e.Position
	axis := 0
	if abs(to[1]-step[1]) > abs(to[0]-step[0]) {
		axis = 1
	}
	step[axis] += cmp.Compare(to[axis], step[axis])
	if step == e.Position {
		return Action{Do: "leave", Why: why}
	}
	return Action{Do: "move", On: fmt.Sprintf("%d,%d", step[0], step[1]), Why: why}
}

// adjacent returns the enemies within one step, diagonals excluded.
func (e Encounter) adjacent() []Enemy {
	var near []Enemy
	for _, enemy := range e.Enemies {
		if distance(e.Position, enemy.Position) <= 1 {
			near = append(near, enemy)
		}
	}
	return near
}

func damage(enemies []Enemy) int {
	total := 0
	for _, e := range enemies {
		total += e.Attack
	}
	return total
}

func distance(a, b Position) int { return abs(a[0]-b[0]) + abs(a[1]-b[1]) }

func abs(n int) int { return max(n, -n) }
