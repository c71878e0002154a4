package harness

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// CloudflareLocal is a Cloudflare account on this machine, run by scripts/cloudflare-local. It outlives the program
// that started it.
type CloudflareLocal struct {
	daemon

	root, binary, exports string
}

// NewCloudflareLocal returns an account that is not started. Both paths are absolute.
func NewCloudflareLocal(root, state string) *CloudflareLocal {
	binary := filepath.Join(state, "cloudflare-local")
	return &CloudflareLocal{
		daemon: newDaemon(state, "cloudflare-local", binary+" -listen"),
		root:   root, binary: binary, exports: filepath.Join(state, "cloudflare-local.env"),
	}
}

// Build builds the Worker, with Node.js, and the program.
func (c *CloudflareLocal) Build(ctx context.Context) error {
	if _, err := Output(ctx, "make", "--no-print-directory", "worker"); err != nil {
		return err
	}
	_, err := Output(ctx, "go", "build", "-o", c.binary, "./scripts/cloudflare-local")
	return err
}

// Start starts an empty account, and returns once it answers.
func (c *CloudflareLocal) Start(ctx context.Context) error {
	if err := os.RemoveAll(c.exports); err != nil {
		return err
	}
	cmd := exec.Command(c.binary, "-listen", "127.0.0.1:0", "-exports", c.exports) // it outlives ctx
	cmd.Dir = c.root
	return c.start(ctx, cmd, func(context.Context) error {
		_, err := os.Stat(c.exports)
		return err
	})
}

// Runs reports whether the account runs.
func (c *CloudflareLocal) Runs(ctx context.Context) bool { return c.alive(ctx) }

// Stop ends the account and all its objects, if it runs.
func (c *CloudflareLocal) Stop(ctx context.Context) error { return c.end(ctx, syscall.SIGTERM) }

// Env returns the environment variables that select the account.
func (c *CloudflareLocal) Env() ([]string, error) {
	text, err := os.ReadFile(c.exports)
	if err != nil {
		return nil, err
	}
	var env []string
	for line := range strings.Lines(string(text)) {
		env = append(env, strings.TrimPrefix(strings.TrimSpace(line), "export "))
	}
	return env, nil
}
