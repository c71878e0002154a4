package operate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/console"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/flags"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/format"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/table"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/client"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/printable"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// defaultEvents is how many events are printed without a starting point.
const defaultEvents = 100

func events(c *console.Console) *cobra.Command {
	var (
		filter sandbox.EventFilter
		follow bool
		last   int
	)
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show the latest events; --follow waits for more",
		Long: `Show the latest events, oldest first. --follow waits for more. With --output json, each event is one line.

--after continues an earlier list, to its end. It takes the id of its last event, or the last_event_id of a lease, an
environment or the ledger. The command fails if an event after that id was already purged. --last 0 shows all retained
events.`,
		Example: `  sandbox events --follow --environment catan-7
  sandbox events --type 'egress.*' --last 0 --output json`,
		Args: console.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if last < 0 {
				return exit.Usagef("--last must not be negative")
			}
			service, err := c.Connect(cmd)
			if err != nil {
				return err
			}
			if filter.LeaseID, err = console.LeaseID(cmd.Context(), service, filter.LeaseID); err != nil {
				return err
			}
			show, err := showEvent(c, cmd)
			if err != nil {
				return err
			}
			if last > 0 && filter.AfterID == 0 && filter.FromSequence == 0 {
				if filter.AfterID, err = showLatest(cmd.Context(), service, filter, last, show); err != nil || !follow {
					return err
				}
			}
			if follow {
				err := service.FollowEvents(cmd.Context(), filter, show)
				if errors.Is(err, context.Canceled) {
					return nil
				}
				return err
			}
			filter.Limit = sandbox.MaxPage
			return console.ShowPages(filter.Limit, func() ([]sandbox.Event, error) {
				return service.ListEvents(cmd.Context(), filter)
			}, func(e sandbox.Event) error {
				filter.AfterID = e.ID
				return show(e)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&follow, "follow", "f", false, "wait for more, until Ctrl-C")
	f.IntVar(&last, "last", defaultEvents, "begin with this `number` of latest events, 0 for all retained ones")
	flags.Filter(f, &filter.EnvironmentID, "environment", "only this environment")
	flags.Filter(f, &filter.LeaseID, "lease", "only this lease")
	flags.Filter(f, &filter.SandboxID, "sandbox", "only this sandbox")
	f.StringVar(&filter.Type, "type", "",
		"only this `type`, such as egress.denied, or a prefix such as 'egress.*'")
	console.LabelFlag(f, &filter.Labels, "only events of environments and generations with these")
	f.Int64Var(&filter.AfterID, "after", 0, "only events after this `id`, such as a lease's last_event_id")
	f.Int64Var(&filter.FromSequence, "from-sequence", 0, "only events of --sandbox after this sequence")
	return cmd
}

// showLatest shows the latest n events, and returns the id after which others follow. It is the ledger's last one: an
// older event may be followed by purged ones that the filter omits.
func showLatest(ctx context.Context, service *client.Client, f sandbox.EventFilter, n int,
	show func(sandbox.Event) error) (after int64, err error) {
	info, err := service.Ledger(ctx)
	if err != nil {
		return 0, err
	}
	var latest []sandbox.Event
	f.Latest, f.BeforeID = true, info.LastEventID+1
	for len(latest) < n {
		f.Limit = min(n-len(latest), sandbox.MaxPage)
		page, err := service.ListEvents(ctx, f)
		if err != nil {
			return 0, err
		}
		if latest = append(latest, page...); len(page) < f.Limit {
			break
		}
		f.BeforeID = page[len(page)-1].ID
	}
	for _, e := range slices.Backward(latest) {
		if err := show(e); err != nil {
			return 0, err
		}
	}
	return info.LastEventID, nil
}

// showEvent prints each event at once, so that --follow needs no buffer.
func showEvent(c *console.Console, cmd *cobra.Command) (func(sandbox.Event) error, error) {
	out := cmd.OutOrStdout()
	switch c.Output {
	case console.JSON:
		lines := printable.NewEncoder(out)
		return func(e sandbox.Event) error { return lines.Encode(e) }, nil
	case console.YAML:
		return nil, exit.Usagef("--output yaml: events are a stream: use json, one event a line")
	case console.Names:
		return func(e sandbox.Event) error {
			_, err := fmt.Fprintln(out, e.ID)
			return err
		}, nil
	}
	width, exact := c.Columns(out), c.Output == console.Wide
	return func(e sandbox.Event) error {
		line := eventLine(e, exact)
		if width > 0 {
			line = format.Cut(line, width)
		}
		_, err := fmt.Fprintln(out, line)
		return err
	}, nil
}

// eventLine returns an event as a line of text.
func eventLine(e sandbox.Event, exact bool) string {
	at, subject := e.At.Local().Format(time.DateTime), e.EnvironmentID
	if exact {
		at = format.Moment(e.At)
	}
	if e.LeaseID != "" {
		subject = format.ShortLease(e.LeaseID)
		if exact {
			subject = e.LeaseID
		}
		subject += "#" + strconv.FormatInt(e.Generation, 10)
	}
	parts := []string{at, fmt.Sprintf("%-24s", e.Type), printable.Text(subject)}
	if fields := fieldsOf(e.Data); fields != "" {
		parts = append(parts, fields)
	}
	if e.Actor != "" {
		by := "by " + printable.Text(e.Actor)
		if e.Address != "" && exact {
			by += " from " + printable.Text(e.Address)
		}
		parts = append(parts, by)
	}
	return strings.Join(parts, table.Gap)
}

// subjectFields are the fields of events' data that repeat the event's subject.
var subjectFields = []string{"environment_id", "lease_id", "generation", "sandbox_id", "agent_did"}

// fieldsOf returns the fields of an event's data as name=value, in their order, without those of its subject.
func fieldsOf(data json.RawMessage) string {
	in := json.NewDecoder(bytes.NewReader(data))
	if begin, err := in.Token(); err != nil || begin != json.Delim('{') {
		return printable.Text(string(data)) // not an object, or nothing
	}
	var fields []string
	for in.More() {
		name, err := in.Token()
		var value json.RawMessage
		if err = errors.Join(err, in.Decode(&value)); err != nil {
			return printable.Text(string(data))
		}
		if !slices.Contains(subjectFields, fmt.Sprint(name)) {
			fields = append(fields, fmt.Sprintf("%v=%s", name, fieldText(value)))
		}
	}
	return printable.Text(strings.Join(fields, " "))
}

// fieldText returns a value without the quotes that it does not need.
func fieldText(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil && text != "" && !strings.ContainsAny(text, " =\"") {
		return text
	}
	return string(value)
}
