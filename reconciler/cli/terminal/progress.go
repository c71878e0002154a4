package terminal

import (
	"fmt"
	"io"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

// patience is how long a command may take before it reports progress.
const patience = time.Second

// Progress shows on standard error what is in progress and for how long, once it takes more than a second. It shows
// nothing unless standard error is a terminal. stop ends it and clears the line.
func Progress(cmd *cobra.Command, what string) (stop func()) {
	if !Is(cmd.ErrOrStderr()) {
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

// ShowWaiting makes a command show progress while it waits for the reconciler's answer.
func ShowWaiting(cmd *cobra.Command, name string) {
	run := cmd.RunE
	if run == nil {
		return
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !Is(cmd.ErrOrStderr()) {
			return run(cmd, args)
		}
		w := &waiting{show: func() func() {
			return progress(cmd.ErrOrStderr(), strings.TrimPrefix(cmd.CommandPath(), name+" "))
		}}
		defer w.end()
		cmd.SetContext(httptrace.WithClientTrace(cmd.Context(), &httptrace.ClientTrace{
			GetConn:              func(string) { w.begin() },
			GotFirstResponseByte: w.end,
		}))
		return run(cmd, args)
	}
}

// waiting shows progress from the start of a request to its answer.
type waiting struct {
	show func() (stop func())
	mu   sync.Mutex // guards stop
	stop func()     // nil while no request waits
}

func (w *waiting) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop == nil {
		w.stop = w.show()
	}
}

func (w *waiting) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop != nil {
		w.stop()
		w.stop = nil
	}
}
