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

// patience is how long a command may take before Progress reports it.
const patience = time.Second

// Progress shows on standard error what is being done and for how long, once it takes more than a second. It shows
// nothing unless standard error is a terminal. stop ends it and clears the line.
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
				fmt.Fprintf(w, "\r%s, %s so far", what, time.Since(began).Round(time.Second)) // best effort
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
