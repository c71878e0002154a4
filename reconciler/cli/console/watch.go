package console

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/terminal"
)

// watchEvery is the pause between two runs of --watch.
const watchEvery = 2 * time.Second

// Watchable adds --watch to commands that list or show something.
func (c *Console) Watchable(commands ...*cobra.Command) {
	for _, command := range commands {
		run, watch := command.RunE, false
		command.Flags().BoolVarP(&watch, "watch", "w", false, "print again every 2 s, until Ctrl-C")
		command.RunE = func(cmd *cobra.Command, args []string) error {
			if !watch {
				return run(cmd, args)
			}
			return watching(cmd, func() error { return run(cmd, args) })
		}
	}
}

// watching repeats a run until the command ends, and prints each output that differs from the one before: over it on
// a terminal, else below it.
func watching(cmd *cobra.Command, run func() error) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for last := ""; ; {
		f := &terminal.Frame{Screen: out}
		cmd.SetOut(f)
		err := run()
		cmd.SetOut(out)
		if ctx.Err() != nil {
			return Stopped(ctx)
		}
		if err != nil {
			return err
		}
		if f.String() != last {
			last = f.String()
			if err := redraw(out, last); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return Stopped(ctx)
		case <-tick.C:
		}
	}
}

// Stopped returns why the context of a command ended, nil when the user ended it.
func Stopped(ctx context.Context) error {
	if ctx.Err() == context.Canceled {
		return nil
	}
	return ctx.Err()
}

func redraw(out io.Writer, text string) error {
	if terminal.Is(out) {
		text = "\x1b[H\x1b[2J" + text // home, and clear the screen
	}
	_, err := fmt.Fprint(out, text)
	return err
}
