// Package audit is the gateway's log of every attempt to get out of a sandbox, as lines of JSON. To
// log never makes traffic wait: what cannot be written in time is dropped, counted, and the count is
// logged in its place.
package audit

import (
	"encoding/json"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/policy"
)

// Kind says what a record tells.
type Kind string

// The kinds of records. An attempt that gets out has Opened and, with the same id, Closed; one that
// does not has Closed alone.
const (
	Opened Kind = "opened"
	Closed Kind = "closed"
	// Dropped counts records of a sandbox that were not written, since the last such record.
	Dropped Kind = "dropped"
)

// Verdict says what became of an attempt.
type Verdict string

// The verdicts.
const (
	Allowed Verdict = "allowed"
	Refused Verdict = "refused" // by the policy, or because the traffic is not what it says it is
	Failed  Verdict = "failed"  // allowed, but the other side could not be reached
)

// Protocol says how the sandbox asked.
type Protocol string

// The protocols.
const (
	Connect Protocol = "connect" // a tunnel whose content is not known yet
	TLS     Protocol = "tls"
	HTTP    Protocol = "http" // one request
)

// Record is one line of the log. Fields are added, never changed: its reader may be another release.
type Record struct {
	Time    time.Time `json:"time"`
	Kind    Kind      `json:"kind"`
	Attempt string    `json:"attempt,omitempty"`
	Sandbox string    `json:"sandbox"`
	Agent   string    `json:"agent,omitempty"`

	Protocol Protocol `json:"protocol,omitempty"`
	// Host is what the sandbox asked for; when refused it may be any text, cut to 260 bytes.
	Host    string        `json:"host,omitempty"`
	Port    uint16        `json:"port,omitempty"`
	Address string        `json:"address,omitempty"` // that was connected to
	Verdict Verdict       `json:"verdict,omitempty"`
	Reason  policy.Reason `json:"reason,omitempty"` // of what was refused or failed, or why it was cut off
	Detail  string        `json:"detail,omitempty"`
	// Sent and Received are bytes from and to the sandbox, of a record Closed.
	Sent     int64         `json:"sent,omitempty"`
	Received int64         `json:"received,omitempty"`
	Duration time.Duration `json:"duration_ns,omitempty"`
	// Count is how many records were dropped.
	Count int64 `json:"count,omitempty"`
}

// Bounds of the log.
const (
	queueLength = 4096
	// perSandbox and burst keep one sandbox from filling the log, records a second. A browser opens
	// some hundred connections at once.
	perSandbox = 50
	burst      = 1000
	// reportEvery is how often drops are reported.
	reportEvery = time.Second
	maxHost     = 260
	maxDetail   = 512
)

// Log writes records in the order in which they came.
type Log struct {
	now   func() time.Time
	queue chan Record
	done  chan struct{}
	// unwritten counts all records that were dropped.
	unwritten atomic.Int64

	mu      sync.Mutex // guards what follows
	sources map[*Source]struct{}
	closed  bool
}

// New returns a log that writes to w until it is closed. nil means time.Now.
func New(w io.Writer, now func() time.Time) *Log {
	if now == nil {
		now = time.Now
	}
	l := &Log{now: now, queue: make(chan Record, queueLength), done: make(chan struct{}), sources: make(map[*Source]struct{})}
	go l.write(w) // ends with Close
	return l
}

// Source is one sandbox's access to the log.
type Source struct {
	log     *Log
	sandbox string
	limiter *rate.Limiter
	dropped atomic.Int64
}

// Source returns the access of a sandbox. Release it when the sandbox is gone.
func (l *Log) Source(sandbox string) *Source {
	s := &Source{log: l, sandbox: sandbox, limiter: rate.NewLimiter(perSandbox, burst)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sources[s] = struct{}{}
	return s
}

// Release reports what was dropped and ends the access.
func (s *Source) Release() {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	delete(s.log.sources, s)
	if n := s.dropped.Swap(0); n > 0 && !s.log.closed {
		select {
		case s.log.queue <- s.count(n):
		default: // the log's own count has them
		}
	}
}

// Add logs a record of the sandbox. It never blocks.
func (s *Source) Add(r Record) {
	r.Sandbox, r.Time = s.sandbox, s.log.now().UTC()
	r.Host, r.Detail = cut(r.Host, maxHost), cut(r.Detail, maxDetail)
	if !s.limiter.AllowN(r.Time, 1) || !s.log.put(r) {
		s.dropped.Add(1)
		s.log.unwritten.Add(1)
	}
}

func cut(s string, n int) string { return s[:min(len(s), n)] }

func (s *Source) count(n int64) Record {
	return Record{Time: s.log.now().UTC(), Kind: Dropped, Sandbox: s.sandbox, Count: n}
}

func (l *Log) put(r Record) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	select {
	case l.queue <- r:
		return true
	default:
		return false
	}
}

// Dropped returns how many records were not written since the log was made.
func (l *Log) Dropped() int64 { return l.unwritten.Load() }

// Close writes what is in the queue, and returns when that is done.
func (l *Log) Close() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.queue)
	}
	l.mu.Unlock()
	<-l.done
}

func (l *Log) write(w io.Writer) {
	defer close(l.done)
	encoder := json.NewEncoder(w)
	put := func(r Record) {
		if encoder.Encode(r) != nil { // the count tells
			l.unwritten.Add(1)
		}
	}
	report := time.NewTicker(reportEvery)
	defer report.Stop()
	for {
		select {
		case r, ok := <-l.queue:
			if !ok {
				l.report(put)
				return
			}
			put(r)
		case <-report.C:
			l.report(put)
		}
	}
}

// report writes what was dropped of each sandbox.
func (l *Log) report(put func(Record)) {
	l.mu.Lock()
	sources := slices.Collect(maps.Keys(l.sources))
	l.mu.Unlock()
	for _, s := range sources {
		if n := s.dropped.Swap(0); n > 0 {
			put(s.count(n))
		}
	}
}
