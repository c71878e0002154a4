package cli

import (
	"time"

	"github.com/spf13/pflag"
)

// span holds the flags that select a period.
type span struct{ from, to string }

func (s *span) flags(f *pflag.FlagSet) {
	f.StringVar(&s.from, "from", "", "start of the period, in RFC 3339")
	f.StringVar(&s.to, "to", "", "end of the period, in RFC 3339")
}

// parse sets the times of the flags that are given.
func (s *span) parse(from, to *time.Time) error {
	for _, bound := range []struct {
		flag, text string
		to         *time.Time
	}{{"--from", s.from, from}, {"--to", s.to, to}} {
		var err error
		if bound.text == "" {
			continue
		}
		if *bound.to, err = time.Parse(time.RFC3339, bound.text); err != nil {
			return usage("%s: %q is not a time such as 2026-08-01T00:00:00Z", bound.flag, bound.text)
		}
	}
	return nil
}
