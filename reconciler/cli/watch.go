package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
)

// watchEvery is the pause between two runs of --watch.
const watchEvery = 2 * time.Second

// watchable adds --watch to commands that list or show something.
func (a *app) watchable(commands ...*cobra.Command) {
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
		f := &frame{screen: out}
		cmd.SetOut(f)
		err := run()
		cmd.SetOut(out)
		if ctx.Err() != nil {
			return stopped(ctx)
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
			return stopped(ctx)
		case <-tick.C:
		}
	}
}

// stopped is nil when the user ended the command.
func stopped(ctx context.Context) error {
	if ctx.Err() == context.Canceled {
		return nil
	}
	return ctx.Err()
}

func redraw(out io.Writer, text string) error {
	if isTerminal(out) {
		text = "\x1b[H\x1b[2J" + text // home, and clear the screen
	}
	_, err := fmt.Fprint(out, text)
	return err
}
