package console_test

import (
	"bytes"
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/table"
)

func TestWatchDoesNotPrintAgesAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		began, state, looks := time.Now(), "active", 0
		c := &console.Console{Now: time.Now, Columns: func(io.Writer) int { return 0 }, Output: console.Table}
		cmd := &cobra.Command{RunE: func(cmd *cobra.Command, _ []string) error {
			if looks++; looks == 4 {
				state = "destroyed"
			}
			return c.Print(cmd, nil, func(t *table.Table) {
				t.Head(table.Col("STATE"), table.Col("SINCE"))
				t.Row(state, t.When(began))
			})
		}}
		c.Watchable(cmd)
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetArgs([]string{"--watch"})
		time.AfterFunc(11*time.Second, stop)
		if err := cmd.ExecuteContext(ctx); err != nil {
			t.Fatal(err)
		}
		const want = "STATE   SINCE\nactive  0s ago\nSTATE      SINCE\ndestroyed  6s ago\n"
		if out.String() != want || looks != 6 {
			t.Errorf("after %d looks it has printed\n%swant\n%s", looks, out.String(), want)
		}
	})
}
