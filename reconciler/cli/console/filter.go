package console

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/flags"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Span holds the flags that select a period.
type Span struct{ from, to string }

// Flags adds --from and --to.
func (s *Span) Flags(f *pflag.FlagSet) {
	f.StringVar(&s.from, "from", "", "start of the period, in RFC 3339")
	f.StringVar(&s.to, "to", "", "end of the period, in RFC 3339")
}

// Parse sets the times of the flags that are given. Errors: Invalid.
func (s *Span) Parse(from, to *time.Time) error {
	for _, bound := range []struct {
		flag, text string
		to         *time.Time
	}{{"--from", s.from, from}, {"--to", s.to, to}} {
		var err error
		if bound.text == "" {
			continue
		}
		if *bound.to, err = time.Parse(time.RFC3339, bound.text); err != nil {
			return exit.Usagef("%s: %q is not a time such as 2026-08-01T00:00:00Z", bound.flag, bound.text)
		}
	}
	return nil
}

// LabelFlag adds the flag of a filter by labels.
func LabelFlag(f *pflag.FlagSet, s *sandbox.LabelSelector, what string) {
	flags.Filter(f, (*string)(s), "labels", what+" `labels`: key=value or key, separated by commas")
}
