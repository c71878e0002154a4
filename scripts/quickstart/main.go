// Command quickstart shows the whole loop on real containers. Terraform builds an image and leases sandboxes, agents
// take turns in them, a game server ends them, one vanishes, and a plan reports all that. After each step it asks the
// Docker Engine and the reconciler, and fails at the first step without the expected result. Run it from the root of
// the repository.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/scripts/harness"
)

func main() {
	clean := flag.Bool("clean", false, "remove everything that quickstart made")
	backend := flag.String("backend", string(sandbox.Docker),
		"where sandboxes run: docker, or cloudflare, which is an account on this machine")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, sandbox.Backend(*backend), *clean); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, backend sandbox.Backend, clean bool) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	if backend != sandbox.Docker && backend != sandbox.Cloudflare {
		return fmt.Errorf("there is no backend %q: give BACKEND=docker or BACKEND=cloudflare", backend)
	}
	q := newQuickstart(root, backend)
	begin := time.Now()
	_, err = os.Stat(q.state)
	switch {
	case err == nil:
		if err := q.step(ctx, 0, newQuickstart(root, q.earlier()).clean); err != nil || clean {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case clean:
		fmt.Println("there is nothing to remove")
		return nil
	}
	steps := []func(context.Context) (outcome, error){q.build, q.serve, q.apply, q.play, q.end, q.hurt, q.plan}
	for i, do := range steps {
		if err := q.step(ctx, i+1, do); err != nil {
			return err
		}
	}
	fmt.Printf("\nDone in %.1f s. The reconciler still serves on %s; `make quickstart-clean` removes everything.\n",
		time.Since(begin).Seconds(), q.reconciler.URL)
	return nil
}

// quickstart is one run, or the removal of one.
type quickstart struct {
	backend    sandbox.Backend
	example    string // examples/quickstart
	state      string // .sandbox, the files that commands share
	binary     string
	reconciler *harness.Reconciler
	terraform  harness.Terraform
	account    *harness.CloudflareLocal // for backend cloudflare only
}

func newQuickstart(root string, backend sandbox.Backend) *quickstart {
	state := filepath.Join(root, ".sandbox")
	example := filepath.Join(root, "examples", "quickstart")
	return &quickstart{
		backend:    backend,
		account:    harness.NewCloudflareLocal(root, state),
		example:    example,
		state:      state,
		binary:     filepath.Join(root, harness.Binary),
		reconciler: harness.NewReconciler(root, state),
		terraform: harness.Terraform{Dir: example, State: state, Variables: map[string]string{
			"backend": string(backend),
		}},
	}
}

// outcome is the result of a step: one line, and details printed below it.
type outcome struct {
	line    string
	details []string
}

// step runs one step and prints its line and duration. Step 0 removes an earlier run.
func (q *quickstart) step(ctx context.Context, number int, do func(context.Context) (outcome, error)) error {
	begin := time.Now()
	o, err := do(ctx)
	if err != nil {
		return fmt.Errorf("step %d: %w", number, err)
	}
	fmt.Printf("%d  %6.1f s  %s\n", number, time.Since(begin).Seconds(), o.line)
	for _, d := range o.details {
		fmt.Println(strings.TrimRight("     "+d, " "))
	}
	return nil
}

// earlier returns the backend of the earlier run. A run without a backend file was on Docker.
func (q *quickstart) earlier() sandbox.Backend {
	if text, err := os.ReadFile(q.backendFile()); err == nil {
		return sandbox.Backend(text)
	}
	return sandbox.Docker
}

func (q *quickstart) backendFile() string { return filepath.Join(q.state, "backend") }
