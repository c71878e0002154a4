// Package audit is the gateway's log of every attempt to reach the network, as lines of JSON. Logging never delays
// traffic: records that cannot be written in time are dropped and counted, and the log has the count instead.
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

// Kind is the kind of a record.
type Kind string

// The kinds of records. An allowed attempt has Opened and, with the same id, Closed. A refused or failed one
// has only Closed.
const (
	Opened Kind = "opened"
	Closed Kind = "closed"
	// Dropped counts a sandbox's dropped records since the last record of this kind.
	Dropped Kind = "dropped"
)

// Verdict is the result of an attempt.
type Verdict string

// The verdicts.
const (
	Allowed Verdict = "allowed"
	Refused Verdict = "refused" // by the policy, or because protocol or name did not match
	Failed  Verdict = "failed"  // allowed, but the host could not be reached
)

// Protocol is how the sandbox made the attempt.
type Protocol string

// The protocols.
const (
	Connect Protocol = "connect" // a tunnel with unknown content
	TLS     Protocol = "tls"
	HTTP    Protocol = "http" // one request
)

// Record is one line of the log. Fields are added, never changed: a reader may be of another release.
type Record struct {
	Time    time.Time `json:"time"`
	Kind    Kind      `json:"kind"`
	Attempt string    `json:"attempt,omitempty"`
	Sandbox string    `json:"sandbox"`
	Agent   string    `json:"agent,omitempty"`

	Protocol Protocol `json:"protocol,omitempty"`
	// Host is the requested host. In a refused attempt it may be any text, cut to 260 bytes.
	Host    string        `json:"host,omitempty"`
	Port    uint16        `json:"port,omitempty"`
	Address string        `json:"address,omitempty"` // the address connected to
	Verdict Verdict       `json:"verdict,omitempty"`
	Reason  policy.Reason `json:"reason,omitempty"` // why it was refused, failed or cut off
	Detail  string        `json:"detail,omitempty"`
	// Sent and Received are bytes from and to the sandbox, in a Closed record.
	Sent     int64         `json:"sent,omitempty"`
	Received int64         `json:"received,omitempty"`
	Duration time.Duration `json:"duration_ns,omitempty"`
	// Count is the number of dropped records.
	Count int64 `json:"count,omitempty"`
}

// Limits of the log.
const (
	queueLength = 4096
	// perSandbox (records a second) and burst keep one sandbox from filling the log. A browser may open some hundred
	// connections at the same time.
	perSandbox = 50
	burst      = 1000
	// reportEvery is the interval between reports of drops.
	reportEvery = time.Second
	maxHost     = 260
	maxDetail   = 512
)

// Log writes records in the order of their arrival.
type Log struct {
	now   func() time.Time
	queue chan Record
	done  chan struct{}
	// unwritten counts all dropped records.
	unwritten atomic.Int64

	mu      sync.Mutex // guards what follows
	sources map[*Source]struct{}
	closed  bool
}

// New returns a log that writes to w until it is closed. A nil now means time.Now.
func New(w io.Writer, now func() time.Time) *Log {
	if now == nil {
		now = time.Now
	}
	l := &Log{
		now:     now,
		queue:   make(chan Record, queueLength),
		done:    make(chan struct{}),
		sources: make(map[*Source]struct{}),
	}
	go l.write(w) // it ends with Close
	return l
}

// Source gives one sandbox access to the log.
type Source struct {
	log     *Log
	sandbox string
	limiter *rate.Limiter
	dropped atomic.Int64
}

// Source returns a sandbox's access. Call Release when the sandbox is gone.
func (l *Log) Source(sandbox string) *Source {
	s := &Source{log: l, sandbox: sandbox, limiter: rate.NewLimiter(perSandbox, burst)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sources[s] = struct{}{}
	return s
}

// Release reports dropped records and ends the access.
func (s *Source) Release() {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	delete(s.log.sources, s)
	if n := s.dropped.Swap(0); n > 0 && !s.log.closed {
		select {
		case s.log.queue <- s.count(n):
		default: // the log's total still has them
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

// Dropped returns the number of dropped records since the log was created.
func (l *Log) Dropped() int64 { return l.unwritten.Load() }

// Close writes the queued records and returns when they are written.
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
		if encoder.Encode(r) != nil { // the count includes it
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

// report writes the number of dropped records of each sandbox.
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
