// Package micro holds times and durations as the ledger stores them: in microseconds.
package micro

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Time is a time in Unix microseconds, as stored; 0 means not yet.
type Time int64

// Never is later than every due time.
const Never = Time(1<<63 - 1)

// At returns the stored form of t.
func At(t time.Time) Time {
	if t.IsZero() {
		return 0
	}
	return Time(t.UnixMicro())
}

// Time returns the time in UTC, the zero time for 0.
func (t Time) Time() time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(t)).UTC()
}

// Midnight returns the start of the UTC day that contains t.
func (t Time) Midnight() Time { return t - t%Time(Day) }

// Add returns the time d later.
func (t Time) Add(d Span) Time { return t + Time(d) }

// Span is a duration in microseconds, as stored.
type Span int64

// Day is a UTC day.
const Day = Span(24 * time.Hour / time.Microsecond)

// SpanOf returns the stored form of d.
func SpanOf[D time.Duration | sandbox.Duration](d D) Span {
	return Span(time.Duration(d).Microseconds())
}

// Duration returns the span as the domain's type.
func (s Span) Duration() sandbox.Duration {
	return sandbox.Duration(time.Duration(s) * time.Microsecond)
}
