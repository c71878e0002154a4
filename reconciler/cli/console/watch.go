package console

import (
	"context"
	"fmt"
	"io"
	"strings"
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
		command.Flags().BoolVarP(&watch, "watch", "w", false, "print again when it changes (every 2 s), until Ctrl-C")
		command.RunE = func(cmd *cobra.Command, args []string) error {
			if !watch {
				return run(cmd, args)
			}
			return c.watching(cmd, func() error { return run(cmd, args) })
		}
	}
}

// watching repeats a run until the command ends. On a terminal, each output replaces the one before. Elsewhere it
// appends an output, but only if it lists something new: times such as "5s ago" do not count.
func (c *Console) watching(cmd *cobra.Command, run func() error) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	defer func() { c.watched = nil }()
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for last := ""; ; {
		f := &terminal.Frame{Screen: out}
		var listed strings.Builder
		c.watched = &listed
		cmd.SetOut(f)
		err := run()
		cmd.SetOut(out)
		if ctx.Err() != nil {
			return Stopped(ctx)
		}
		if err != nil {
			return err
		}
		now := f.String()
		if listed.Len() > 0 && !terminal.Is(out) {
			now = listed.String()
		}
		if now != last {
			last = now
			if err := redraw(out, f.String()); err != nil {
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
		text = "\x1b[H\x1b[2J" + text // cursor to the top left, and clear the screen
	}
	_, err := fmt.Fprint(out, text)
	return err
}
