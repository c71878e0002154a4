package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
)

// patience is how long a command may take before it says what it does.
const patience = time.Second

// Progress says on standard error, where that is a terminal, what is being done and for how long, should it
// take more than a second. It ends, and leaves nothing on the line, when stop is called.
func Progress(cmd *cobra.Command, what string) (stop func()) {
	if !isTerminal(cmd.ErrOrStderr()) {
		return func() {}
	}
	return progress(cmd.ErrOrStderr(), what)
}

func progress(w io.Writer, what string) (stop func()) {
	ended := make(chan struct{})
	var wg sync.WaitGroup
	began := time.Now()
	wg.Go(func() {
		tick := time.NewTicker(patience)
		defer tick.Stop()
		shown := false
		for {
			select {
			case <-tick.C:
				shown = true
				fmt.Fprintf(w, "\r%s, %s so far", what, time.Since(began).Round(time.Second)) // a terminal that is gone needs none
			case <-ended:
				if shown {
					fmt.Fprint(w, "\r\x1b[K") // clears the line
				}
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		close(ended)
		wg.Wait()
	})
}

// isTerminal reports whether the output is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
