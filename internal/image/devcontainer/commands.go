package devcontainer

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// command is a lifecycle command: a line for the shell, a program with arguments, or several commands by name. It is
// kept as a list of programs with arguments.
type command [][]string

// UnmarshalJSON implements json.Unmarshaler.
func (c *command) UnmarshalJSON(data []byte) error {
	one, err := program(data)
	if err == nil {
		if len(one) > 0 {
			*c = command{one}
		}
		return nil
	}
	var several map[string]json.RawMessage
	if json.Unmarshal(data, &several) != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(several)) {
		one, err := program(several[name])
		if err != nil {
			return err
		}
		if len(one) > 0 {
			*c = append(*c, one)
		}
	}
	return nil
}

// program returns the program of one command, nil for an empty one.
func program(data []byte) (list []string, err error) {
	var line string
	if json.Unmarshal(data, &line) == nil {
		if line == "" {
			return nil, nil
		}
		return append(slices.Clone(shell), line), nil
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("a command must be a text, a list of texts, or an object of those: %w", err)
	}
	return list, nil
}

// lifecycle are the commands that run once a container exists, in this order. A feature may have them too.
type lifecycle struct {
	OnCreate      command `json:"onCreateCommand"`
	UpdateContent command `json:"updateContentCommand"`
	PostCreate    command `json:"postCreateCommand"`
}

// hooks returns all commands that a sandbox runs, by property.
func (c *config) hooks() map[string]*command {
	return map[string]*command{
		"onCreateCommand": &c.OnCreate, "updateContentCommand": &c.UpdateContent, "postCreateCommand": &c.PostCreate,
		"postStartCommand": &c.PostStarting,
	}
}

// postStart returns the commands to run in each sandbox. Commands of features come first, as the specification says.
func (c *config) postStart(features []*feature) (all [][]string) {
	for _, hook := range []func(l lifecycle) command{
		func(l lifecycle) command { return l.OnCreate },
		func(l lifecycle) command { return l.UpdateContent },
		func(l lifecycle) command { return l.PostCreate },
	} {
		for _, f := range features {
			all = append(all, hook(f.lifecycle)...)
		}
		all = append(all, hook(c.lifecycle)...)
	}
	for _, f := range features {
		all = append(all, f.PostStarting...)
	}
	return append(all, c.PostStarting...)
}

// shell runs a command that is one text.
var shell = []string{"/bin/sh", "-c"}

// isShell reports whether a command was one text.
func isShell(command []string) bool { return len(command) == 3 && slices.Equal(command[:2], shell) }
