package audit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway/audit"
)

// valve is a writer that a test can block.
type valve struct {
	mu   sync.Mutex // guards what follows, and is locked while the writer blocks
	text bytes.Buffer
}

func (v *valve) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.text.Write(p)
}

func (v *valve) records(t *testing.T) []audit.Record {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	var list []audit.Record
	for line := range strings.Lines(v.text.String()) {
		var r audit.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, r)
	}
	return list
}

func TestWhatCannotBeWrittenIsCountedAndNeverWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &valve{}
		log := audit.New(out, nil)
		busy, quiet := log.Source("busy"), log.Source("quiet")
		out.mu.Lock() // the sink hangs
		const many = 10_000
		for range many {
			busy.Add(audit.Record{Kind: audit.Closed, Verdict: audit.Refused})
		}
		quiet.Add(audit.Record{Kind: audit.Closed, Verdict: audit.Allowed})
		out.mu.Unlock()
		time.Sleep(2 * time.Second) // in the bubble: drops are reported each second
		var written, dropped, others int64
		for _, r := range out.records(t) {
			switch {
			case r.Sandbox == "quiet" && r.Kind == audit.Closed:
				others++
			case r.Kind == audit.Dropped:
				dropped += r.Count
			default:
				written++
			}
		}
		if written+dropped != many || written == 0 || dropped == 0 || others != 1 || log.Dropped() != dropped {
			t.Errorf("of %d records %d were written and %d counted as dropped (%d), and %d of another sandbox",
				many, written, dropped, log.Dropped(), others)
		}
		log.Close()
	})
}

func TestCloseWritesWhatIsLeft(t *testing.T) {
	t.Parallel()
	out := &valve{}
	log := audit.New(out, func() time.Time { return time.Unix(1_790_000_000, 0) })
	s := log.Source("a")
	for range 1500 { // all at the same time: more than a sandbox's share
		s.Add(audit.Record{Kind: audit.Closed, Host: strings.Repeat("x", 5000)})
	}
	s.Release()
	log.Close()
	s.Add(audit.Record{Kind: audit.Closed})
	list := out.records(t)
	if len(list) != 1001 {
		t.Fatalf("%d records", len(list))
	}
	if last := list[1000]; last.Kind != audit.Dropped || last.Count != 500 || last.Sandbox != "a" {
		t.Errorf("the last record is %+v", last)
	}
	if r := list[0]; len(r.Host) != 260 || r.Time.Unix() != 1_790_000_000 {
		t.Errorf("the first record is %+v", r)
	}
	log.Close() // again
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestASinkThatFailsIsCounted(t *testing.T) {
	t.Parallel()
	log := audit.New(broken{}, nil)
	log.Source("a").Add(audit.Record{Kind: audit.Closed})
	log.Close()
	if log.Dropped() != 1 {
		t.Errorf("%d records count as dropped", log.Dropped())
	}
}
