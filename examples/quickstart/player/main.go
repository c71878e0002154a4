// Command player decides an agent's turn: it reads the state of a game as JSON from standard input, and writes its
// action as JSON to standard output. It stores nothing between turns, so it needs no network and no disk.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := takeTurn(os.Stdin, os.Stdout, os.Getenv("AGENT_DID")); err != nil {
		fmt.Fprintln(os.Stderr, "player:", err)
		os.Exit(1)
	}
}

// Action is what an agent does in its turn.
type Action struct {
	// Agent is the DID of the agent, as its sandbox knows it.
	Agent string `json:"agent"`
	Game  string `json:"game"`
	// Do names the action, such as build_settlement or attack.
	Do string `json:"do"`
	// On is the target of the action: a spot, an enemy, a position, a resource.
	On string `json:"on,omitempty"`
	// Give is what the player pays in a trade.
	Give string `json:"give,omitempty"`
	// Why is the reason, for the log of the game.
	Why string `json:"why"`
}

func takeTurn(in io.Reader, out io.Writer, agent string) error {
	var turn struct {
		Game  string          `json:"game"`
		State json.RawMessage `json:"state"`
	}
	if err := json.NewDecoder(in).Decode(&turn); err != nil {
		return fmt.Errorf("read the game state: %w", err)
	}
	action, err := decide(turn.Game, turn.State)
	if err != nil {
		return fmt.Errorf("game %q: %w", turn.Game, err)
	}
	action.Agent, action.Game = agent, turn.Game
	return json.NewEncoder(out).Encode(action)
}

func decide(game string, state json.RawMessage) (Action, error) {
	switch game {
	case "catan":
		var s Settlers
		if err := json.Unmarshal(state, &s); err != nil {
			return Action{}, fmt.Errorf("read state: %w", err)
		}
		return s.Decide(), nil
	case "rpg":
		var s Encounter
		if err := json.Unmarshal(state, &s); err != nil {
			return Action{}, fmt.Errorf("read state: %w", err)
		}
		return s.Decide(), nil
	default:
		return Action{}, fmt.Errorf("not known: catan and rpg are")
	}
}
