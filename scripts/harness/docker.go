package harness

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// StartEngine returns once a Docker Engine answers, starting one if none does.
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

// Containers returns the names of the containers, running or not, whose name holds the text. The
// names of sandboxes hold their ledger's id and their own.
func Containers(ctx context.Context, text string) ([]string, error) {
	return Docker(ctx, "ps", "--all", "--format", "{{.Names}}", "--filter", "name="+text)
}

// Gone waits until the engine has none of these sandboxes of a ledger, and returns how long that took.
func Gone(ctx context.Context, ledger string, sandboxes ...string) (time.Duration, error) {
	return Until(ctx, 30*time.Second, "the containers are gone", func(ctx context.Context) (bool, error) {
		names, err := Containers(ctx, ledger)
		all := strings.Join(names, " ")
		left := slices.ContainsFunc(sandboxes, func(id string) bool { return strings.Contains(all, id) })
		return err == nil && !left, err
	})
}

// Leftovers names what the engine still has of a ledger, and of the image.
func Leftovers(ctx context.Context, ledger, image string) ([]string, error) {
	var left []string
	for _, l := range []struct {
		kind string
		args []string
	}{
		{"container", []string{"ps", "--all", "--format", "{{.Names}}", "--filter", "name=" + ledger}},
		{"volume", []string{"volume", "ls", "--format", "{{.Name}}", "--filter", "name=" + ledger}},
		{"network", []string{"network", "ls", "--format", "{{.Name}}", "--filter", "name=" + ledger}},
		{"image", []string{"image", "ls", "--format", "{{.Repository}}:{{.Tag}}", "--filter", "reference=" + image, "--filter", "reference=sandbox-" + ledger}},
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
