//go:build linux

package keeper

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/fork"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/output"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// linked returns a keeper's broker side, played by the test.
func linked(t *testing.T, change func(*keeper)) (*keeper, *link.Conn) {
	t.Helper()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	k := newKeeper(starts{
		null: null, processes: func(int) uint64 { return 0 }, diskEnded: func() time.Duration { return 0 },
		create: output.NamelessFile,
	}, func() {})
	k.log.SetOutput(io.Discard)
	if change != nil {
		change(k)
	}
	conn, other, err := link.Pair()
	if err != nil {
		t.Fatal(err)
	}
	broker, err := link.New(other)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { k.serve(conn) })
	t.Cleanup(func() {
		_ = broker.Close() // a test may have closed it
		serving.Wait()
		if err := null.Close(); err != nil {
			t.Error(err)
		}
	})
	return k, broker
}

func ask(t *testing.T, c *link.Conn, m link.Message) link.Message {
	t.Helper()
	if err := c.Send(m); err != nil {
		t.Fatal(err)
	}
	for {
		a, err := c.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if a.Kind == link.Answer && a.Seq == m.Seq {
			return a
		}
		link.CloseAll(a.Files)
	}
}

func TestAPanicCostsOneMessageOnly(t *testing.T) {
	_, c := linked(t, func(k *keeper) {
		k.fault = func(m link.Message) {
			if m.ID == "bad" {
				panic("injected")
			}
		}
	})
	for i := range uint64(3 * maxLogged / 2) {
		a := ask(t, c, link.Message{Kind: link.Begin, Seq: 2*i + 1, ID: "bad"})
		if a.Problem != wire.ProblemFailed || !strings.Contains(a.Text, "injected") {
			t.Fatalf("%+v", a)
		}
		if a := ask(t, c, link.Message{Kind: link.Begin, Seq: 2*i + 2, ID: fmt.Sprint(i)}); a.Problem != "" {
			t.Fatalf("%+v", a)
		}
	}
	// An incomplete message costs only its turn, too.
	for seq, kind := range map[uint64]link.Kind{1: link.Start, 2: "unknown"} {
		if a := ask(t, c, link.Message{Kind: kind, Seq: seq, ID: "odd"}); a.Problem == "" {
			t.Errorf("%s: %+v", kind, a)
		}
	}
}

// TestAPanicOfAGoroutineCostsItsTurnOnly injects panics into the keeper's work beside its messages.
func TestAPanicOfAGoroutineCostsItsTurnOnly(t *testing.T) {
	k, c := linked(t, func(k *keeper) {
		k.assign = func(*wire.Lease) link.Message { panic("injected") }
		k.freezer.spared = func() map[int]bool { panic("injected") }
	})
	ask(t, c, link.Message{Kind: link.Begin, Seq: 8, ID: "first"}) // now the keeper has a session
	stuck := &command{id: "stuck", ended: make(chan struct{}), spares: func() { panic("injected") }}
	stuck.supervisor.Store(1)
	k.mu.Lock()
	k.commands["stuck"] = stuck
	k.readers[7] = &reader{} // it has no command, so that its notice panics
	s := k.session
	k.mu.Unlock()
	s.mu.Lock()
	s.dirty[7] = true
	s.mu.Unlock()
	s.now <- struct{}{}
	for seq, m := range []link.Message{{Kind: link.Assign}, {Kind: link.Freeze}, {Kind: link.End, ID: "stuck"}} {
		m.Seq = uint64(seq) + 1
		if a := ask(t, c, m); a.Problem != wire.ProblemFailed || !strings.Contains(a.Text, "injected") {
			t.Errorf("%s: %+v", m.Kind, a)
		}
	}
	if !k.starts.freezeLock.TryRLock() {
		t.Error("after a freeze that panicked, no command can start")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan any, 1)
	p := startPump(r, panics{}, func(work func()) { failed <- k.guard("pump", work) })
	if _, err := w.WriteString("text"); err != nil {
		t.Error(err)
	}
	p.join()
	if <-failed == nil || w.Close() != nil {
		t.Error("the pump did not fail")
	}
	if a := ask(t, c, link.Message{Kind: link.Begin, Seq: 9, ID: "next"}); a.Problem != "" {
		t.Errorf("the next operation: %+v", a)
	}
	k.mu.Lock()
	delete(k.readers, 7)
	delete(k.commands, "stuck")
	k.mu.Unlock()
}

// A timeout that panics still ends its command.
func TestAPanicOfATimeoutEndsTheCommandAllTheSame(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("user 0 is needed to start commands as other users")
	}
	k, _ := linked(t, nil)
	starter, err := fork.NewStarter()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	child, err := starter.Start(fork.Command{
		Path: "/bin/sleep", Args: []string{"sleep", "5"}, Dir: dir, UID: 123456, GID: 123456,
		Files: [3]*os.File{k.starts.null, k.starts.null, k.starts.null},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &command{id: "late", spares: func() { panic("injected") }, ended: make(chan struct{})}
	c.spec.Timeout = 200 * time.Millisecond
	status, late, err := c.wait(child, time.Now(), k.guard)
	if err != nil || !late || status.Signal() != unix.SIGKILL {
		t.Errorf("the command ended with %#x, by its timeout: %t, %v", status, late, err)
	}
	if err := errors.Join(dir.Close(), starter.Close()); err != nil {
		t.Error(err)
	}
}

// A command that does not start in time holds up neither its end nor a freeze, even if its pipes stay open.
func TestACommandWhoseStartWasGivenUpEnds(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("user 0 is needed to start commands as other users")
	}
	starter, err := fork.NewStarter()
	if err != nil {
		t.Fatal(err)
	}
	k, _ := linked(t, func(k *keeper) { k.starts.starter = starter })
	if err := unix.Kill(starter.PID(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s := k.starts
	if s.dir, err = os.Open("/"); err != nil {
		t.Fatal(err)
	}
	c := &command{id: "late", ended: make(chan struct{}), changed: func(bool) {}}
	c.spec.Path, c.spec.Args, c.spec.UID, c.spec.GID = "/bin/sleep", []string{"sleep", "5"}, 123456, 123456
	if err := c.openOutput(s.create); err != nil {
		t.Fatal(err)
	}
	ended := make(chan wire.Result, 1)
	go func() { ended <- c.run(s) }()
	select {
	case r := <-ended:
		if r.ExitCode != exitCannotStart {
			t.Errorf("%+v", r)
		}
	case <-time.After(5 * time.Second):
		t.Error("it does not end")
	}
	if !s.freezeLock.TryLock() {
		t.Error("the sandbox cannot be frozen")
	}
	c.drop()
	if err := errors.Join(unix.Kill(starter.PID(), unix.SIGCONT), starter.Close()); err != nil {
		t.Error(err)
	}
}

// Process 1 keeps a broker running, whatever happened to the previous one.
func TestAPanicOfABrokersTurnCostsThatTurnOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(starts{}, func() {})
		k.log.SetOutput(io.Discard)
		turns, left := 0, make(chan struct{})
		go k.keepBroker(func() error {
			switch turns++; turns {
			case 1, 2:
				panic("injected")
			case 3:
				return errors.New("injected")
			default:
				close(left)
				runtime.Goexit()
				return nil
			}
		})
		<-left
	})
}

type panics struct{}

func (panics) Write([]byte) (int, error) { panic("injected") }

func TestTheJournalOutlivesABroker(t *testing.T) {
	k, c := linked(t, nil)
	ask(t, c, link.Message{Kind: link.Begin, Seq: 1, ID: "ended", Op: "put"})
	ask(t, c, link.Message{Kind: link.Done, Seq: 2, ID: "ended", Result: &wire.Result{ExitCode: 7}})
	ask(t, c, link.Message{Kind: link.Begin, Seq: 3, ID: "broken off", Op: "put"})
	k.leave()
	if a := ask(t, c, link.Message{Kind: link.Begin, Seq: 4, ID: "ended"}); a.Began == nil || !a.Began.Ended ||
		a.Began.Result.ExitCode != 7 {
		t.Errorf("%+v", a)
	}
	a := ask(t, c, link.Message{Kind: link.Begin, Seq: 5, ID: "broken off"})
	if a.Began == nil || !a.Began.Ended || a.Began.Op != "put" || a.Began.Result.Problem != wire.ProblemUnknown {
		t.Errorf("an operation that the broker's death broke off may be applied twice: %+v", a.Began)
	}
	for i := range 2 * journalled {
		id := fmt.Sprint("operation ", i)
		ask(t, c, link.Message{Kind: link.Begin, Seq: 6, ID: id})
		ask(t, c, link.Message{Kind: link.Done, Seq: 7, ID: id, Result: &wire.Result{}})
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.journal) > journalled+1 {
		t.Errorf("%d operations are remembered", len(k.journal))
	}
}

func TestTheOldestCommandsAreForgotten(t *testing.T) {
	k, _ := linked(t, nil)
	keep := func(id string, bytes int64) {
		c := &command{id: id, ended: make(chan struct{}), changed: func(bool) {}}
		if err := c.openOutput(k.starts.create); err != nil {
			t.Fatal(err)
		}
		c.streams[0].kept = bytes // far more than a stream keeps
		k.commands[id] = c
		k.end(c, wire.Result{})
	}
	for i := range keptEnded + 2 {
		keep(fmt.Sprint(i), 1)
	}
	if k.commands["1"] != nil || k.commands["2"] == nil || len(k.ended) != keptEnded {
		t.Errorf("%d commands are kept", len(k.ended))
	}
	keep("large", keptBytes+1)
	if len(k.commands) != 1 {
		t.Errorf("%d are kept beside one that alone is too large", len(k.commands)-1)
	}
	k.commands["large"].drop()
}

func TestAnEndedProcessCountsForItsOutputOnly(t *testing.T) {
	k, _ := linked(t, nil)
	for i := range keptEnded {
		f, _, err := output.NamelessFile(output.RingLimit)
		if err != nil {
			t.Fatal(err)
		}
		log, err := output.MakeRing(f, output.RingLimit)
		if err != nil {
			t.Fatal(err)
		}
		c := &command{id: fmt.Sprint(i), ended: make(chan struct{}), log: log}
		if _, err := io.WriteString(log, "ten bytes\n"); err != nil {
			t.Fatal(err)
		}
		k.commands[c.id] = c
		k.end(c, wire.Result{})
	}
	if len(k.commands) != keptEnded {
		t.Errorf("%d of %d processes are kept, though each wrote ten bytes", len(k.commands), keptEnded)
	}
	for _, c := range k.commands {
		c.drop()
	}
}
