package cli_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
)

func TestWatchPrintsWhatChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game(time.Second)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out := syncBuffer{make(chan string)}
	command := cli.New(cli.Config{Getenv: noHome, Now: w.Now})
	command.SetOut(out)
	code := make(chan int, 1)
	go func() {
		code <- cli.Run(ctx, command, []string{"lease", "list", "--watch", "--url", w.url, "--token-file", w.tokenFile})
	}()
	if text := <-out.lines; !strings.Contains(text, "active") || strings.Contains(text, "\x1b") {
		t.Errorf("first it prints %q", text)
	}
	w.want(w.run("lease", "release", "did:plc:ann::catan-7"), exit.Done)
	if text := <-out.lines; !strings.Contains(text, "destroyed") {
		t.Errorf("then it prints %q", text)
	}
	stop()
	if got := <-code; got != exit.Done {
		t.Errorf("stopped, it exits with %d", got)
	}
}
