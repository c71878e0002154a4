package sessions

import (
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// tapPause is how long output is gathered before it is recorded, and so the delay of a viewer. A command that writes
	// all the time causes 20 commits a second. They cost 30 ms of one core for a single command, and 10 ms each for 20
	// commands, which share commits (BenchmarkRecording, November 2026).
	tapPause = 50 * time.Millisecond
	// tapEvent limits the data of one event, in bytes. Output in quick succession is one event.
	tapEvent = 8 << 10
	// tapPending limits the gathered output, in bytes. A ledger that is slower than a command slows the command down.
	tapPending = 256 << 10
)

// Tap records the output of a command of a session, in the order in which it is read. The recording has a prefix of
// each stream, and the ledger knows its length: a process that takes the command over continues there.
type Tap struct {
	sessions *Service
	exec     execs.Exec // as it began
	holder   string
	wg       sync.WaitGroup
	// gathered signals gathered output to the recorder; full signals that it need not wait for more. Each
	// holds one signal.
	gathered, full chan struct{}
	stop           context.CancelFunc
	// at is the last known sequence of the session. Only the recorder uses it until it has ended.
	at int64

	mu      sync.Mutex // guards the fields below
	room    *sync.Cond
	skip    map[sandbox.SessionEventType]int64 // bytes that are already recorded
	pending []execs.SessionEvent
	bytes   int
	// writing counts the first elements of pending, which the recorder is storing.
	writing int
	// stopped means that no writer waits for room. abandoned means that nothing is gathered.
	stopped, abandoned bool
}

// Recorded is how far a session's recording is: its last sequence, and how much of each stream of the current command
// it has.
type Recorded struct {
	at      int64
	streams map[sandbox.SessionEventType]int64
}

// NewTap records the output of a session's command until Close. It skips what is already recorded.
func (v *Service) NewTap(x execs.Exec, holder string, has Recorded) *Tap {
	t := &Tap{
		sessions: v,
		exec:     x,
		holder:   holder,
		at:       has.at,
		skip:     has.streams,
		gathered: make(chan struct{}, 1),
		full:     make(chan struct{}, 1),
	}
	if t.skip == nil {
		t.skip = make(map[sandbox.SessionEventType]int64)
	}
	t.room = sync.NewCond(&t.mu)
	ctx, stop := context.WithCancel(v.Life)
	t.stop = stop
	t.wg.Go(func() { t.record(ctx) })
	return t
}

// Close stops the recording. The gathered rest is for Rest, or for the process that takes the command over. It may be
// called again, and on nil.
func (t *Tap) Close() {
	if t == nil {
		return
	}
	t.giveUp()
	t.stop()
	t.wg.Wait()
}

// Rest records the gathered rest, in the transaction that settles the command. Call Close before.
func (t *Tap) Rest(tx *ledger.Tx, x *execs.Exec) error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	pending := slices.Clone(t.pending)
	t.mu.Unlock()
	_, err := t.append(tx, x, pending)
	return err
}

// append records events in a session without another recorder. It skips events that an earlier commit stored although
// its answer was lost. It returns the session's last sequence.
func (t *Tap) append(tx *ledger.Tx, x *execs.Exec, events []execs.SessionEvent) (int64, error) {
	row, err := mustSession(tx, x)
	if err != nil || bool(row.IsFull) || row.DroppedAt != 0 {
		return t.at, err
	}
	events = events[min(row.LastSequence-t.at, int64(len(events))):]
	if err := execs.In(tx).AppendSessionEvents(row, events...); err != nil || len(events) == 0 {
		return row.LastSequence, err
	}
	return row.LastSequence, execs.In(tx).SaveSession(row)
}

// Stream returns the writer of one kind of events; nil for a nil tap.
func (t *Tap) Stream(kind sandbox.SessionEventType) io.Writer {
	if t == nil {
		return nil
	}
	return tapStream{t, kind}
}

type tapStream struct {
	tap  *Tap
	kind sandbox.SessionEventType
}

// Write implements io.Writer. It never fails.
func (s tapStream) Write(p []byte) (int, error) {
	s.tap.add(s.kind, p)
	return len(p), nil
}

// add gathers bytes of a stream. It waits while there is no room.
func (t *Tap) add(kind sandbox.SessionEventType, p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := min(t.skip[kind], int64(len(p)))
	t.skip[kind] -= known
	p = p[known:]
	for len(p) > 0 && !t.abandoned {
		for t.bytes >= tapPending && !t.stopped {
			t.room.Wait()
		}
		n := t.gather(kind, p)
		p = p[n:]
	}
}

// gather adds a prefix of p to the pending events, and returns its length. The caller must hold the lock.
func (t *Tap) gather(kind sandbox.SessionEventType, p []byte) int {
	last := len(t.pending) - 1
	if last < t.writing || t.pending[last].Type != kind || len(t.pending[last].Data) == tapEvent {
		t.pending = append(t.pending,
			execs.SessionEvent{At: micro.At(t.sessions.Store.Now()), Type: kind, Source: t.exec.Source, ExecID: t.exec.ID})
		last++
	}
	e := &t.pending[last]
	n := min(len(p), tapEvent-len(e.Data))
	e.Data = append(e.Data, p[:n]...)
	t.bytes += n
	signal(t.gathered)
	if t.bytes >= tapPending/2 {
		signal(t.full)
	}
	return n
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// record stores gathered output until ctx ends or another reconciler follows the command. It retries failures.
func (t *Tap) record(ctx context.Context) {
	defer t.giveUp()
	pause, full := tapPause, t.full
	for failures := int64(0); ; {
		select {
		case <-t.gathered:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(pause):
		case <-full:
		case <-ctx.Done():
			return
		}
		mine, err := t.store(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			failures++
			pause, full = lifecycle.Backoff(failures), nil
			t.sessions.Log.Warn("sessions: recording a session", lifecycle.AboutLease(t.exec.LeaseID, t.exec.SandboxID),
				"exec", t.exec.ID, "session", t.exec.SessionID, "error", err)
			signal(t.gathered)
		case !mine:
			t.abandon()
			return
		default:
			failures, pause, full = 0, tapPause, t.full
		}
	}
}

// store records the gathered output, if this process still follows the command.
func (t *Tap) store(ctx context.Context) (mine bool, err error) {
	t.mu.Lock()
	t.writing = len(t.pending)
	some := slices.Clone(t.pending)
	t.mu.Unlock()
	var at int64
	err = t.sessions.Store.Write(ctx, func(tx *ledger.Tx) error {
		x, err := execs.In(tx).Exec(t.exec.ID)
		mine = err == nil && x != nil && x.Holder == t.holder
		if !mine {
			return err
		}
		at, err = t.append(tx, x, some)
		return err
	})
	if err != nil || !mine {
		return mine, err
	}
	t.at = at
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range some {
		t.bytes -= len(some[i].Data)
	}
	t.pending, t.writing = slices.Delete(t.pending, 0, len(some)), 0
	t.room.Broadcast()
	return true, nil
}

// abandon drops the gathered output: the process that has taken the command over records it.
func (t *Tap) abandon() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.abandoned, t.pending, t.bytes, t.writing = true, nil, 0, 0
}

// giveUp ends every wait for room.
func (t *Tap) giveUp() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	t.room.Broadcast()
}
