package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// StartEngine returns once a Docker Engine answers. It starts one if none does.
func StartEngine(ctx context.Context, state string) error {
	return Script(ctx, "docker-engine", "start", filepath.Join(state, "engine"))
}

// StopEngine stops the engine that StartEngine started with the same state directory, if any.
func StopEngine(ctx context.Context, state string) error {
	return Script(ctx, "docker-engine", "stop", filepath.Join(state, "engine"))
}

// Docker returns the words that a docker command prints.
func Docker(ctx context.Context, args ...string) ([]string, error) {
	text, err := Output(ctx, "docker", args...)
	return strings.Fields(text), err
}

// Containers returns the names of all containers, running or not, that contain the text. The name of a sandbox contains
// the id of its ledger and its own id.
func Containers(ctx context.Context, text string) ([]string, error) {
	return Docker(ctx, "ps", "--all", "--format", "{{.Names}}", "--filter", "name="+text)
}

// inspected returns a line for each container of a ledger. It retries if a container disappears in the meantime.
func inspected(ctx context.Context, ledger string) (string, error) {
	for {
		names, err := Containers(ctx, ledger)
		if err != nil || len(names) == 0 {
			return "", err
		}
		text, err := Output(ctx,
			"docker", append([]string{"inspect", "--format", "{{.Name}} {{json .Config.Env}}"}, names...)...)
		if err == nil {
			return text, nil
		}
		left, listErr := Containers(ctx, ledger)
		if listErr != nil || !slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(left, n) }) {
			return "", errors.Join(err, listErr)
		}
	}
}

// Container is a container of a sandbox.
type Container struct {
	Name                    string
	AgentDID, EnvironmentID string
}

// Sandboxes returns the containers of a ledger's sandboxes, running or not, on any backend. It leaves out the ledger's
// other containers, such as gateways.
func Sandboxes(ctx context.Context, ledger string) ([]Container, error) {
	text, err := inspected(ctx, ledger)
	if err != nil {
		return nil, err
	}
	var all []Container
	for line := range strings.Lines(text) {
		name, variables, found := strings.Cut(strings.TrimSpace(line), " ")
		if !found {
			continue
		}
		c := Container{Name: strings.TrimPrefix(name, "/")}
		var env []string
		if err := json.Unmarshal([]byte(variables), &env); err != nil {
			return nil, fmt.Errorf("read docker inspect %s: %w", c.Name, err)
		}
		for _, v := range env {
			switch key, value, _ := strings.Cut(v, "="); key {
			case "AGENT_DID":
				c.AgentDID = value
			case "ENVIRONMENT_ID":
				c.EnvironmentID = value
			}
		}
		if c.AgentDID != "" {
			all = append(all, c)
		}
	}
	return all, nil
}

// Gone waits until no container of a ledger satisfies is, and returns how long that took.
func Gone(ctx context.Context, ledger string, is func(Container) bool) (time.Duration, error) {
	return Until(ctx, 30*time.Second, "the containers are gone", func(ctx context.Context) (bool, error) {
		all, err := Sandboxes(ctx, ledger)
		return err == nil && !slices.ContainsFunc(all, is), err
	})
}

// Objects returns the engine's remaining objects of a ledger, and of the image.
func Objects(ctx context.Context, ledger, image string) ([]string, error) {
	var left []string
	for _, l := range []struct {
		kind string
		args []string
	}{
		{"container", []string{"ps", "--all", "--format", "{{.Names}}", "--filter", "name=" + ledger}},
		{"volume", []string{"volume", "ls", "--format", "{{.Name}}", "--filter", "name=" + ledger}},
		{"network", []string{"network", "ls", "--format", "{{.Name}}", "--filter", "name=" + ledger}},
		{"image", []string{
			"image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "--filter", "reference=" + image,
			"--filter", "reference=sandbox-" + ledger,
		}},
	} {
		names, err := Docker(ctx, l.args...)
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			left = append(left, l.kind+" "+n)
		}
	}
	return left, nil
}
