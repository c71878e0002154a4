// Command quickstart shows the whole loop on real containers: Terraform builds an image and leases
// sandboxes, agents take turns in them, a game server ends them, one vanishes, and a plan tells it
// all. It checks what each step shows by asking the Docker Engine and the reconciler, and fails at
// the first step that does not show what it says. It is run from the root of the repository.
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

	"github.com/sandbox-lease/terraform-provider-sandbox/scripts/harness"
)

func main() {
	clean := flag.Bool("clean", false, "remove everything that quickstart made")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *clean); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, clean bool) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	q := newQuickstart(root)
	begin := time.Now()
	_, err = os.Stat(q.state)
	switch {
	case err == nil:
		if err := q.step(ctx, 0, q.clean); err != nil || clean {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case clean:
		fmt.Println("there is nothing to remove")
		return nil
	}
	steps := []func(context.Context) (outcome, error){q.build, q.serve, q.apply, q.play, q.end, q.remove, q.plan}
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
	example    string // examples/quickstart
	state      string // .sandbox: everything that is kept between commands
	binary     string
	reconciler *harness.Reconciler
	terraform  harness.Terraform
}

func newQuickstart(root string) *quickstart {
	state := filepath.Join(root, ".sandbox")
	example := filepath.Join(root, "examples", "quickstart")
	return &quickstart{
		example:    example,
		state:      state,
		binary:     filepath.Join(root, harness.Binary),
		reconciler: harness.NewReconciler(root, state),
		terraform:  harness.Terraform{Dir: example, State: state},
	}
}

// outcome is what a step showed: one line, and what it prints below.
type outcome struct {
	line    string
	details []string
}

// step runs one step and prints its line with the time that it took. Step 0 is the removal of an
// earlier run.
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
