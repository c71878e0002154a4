//go:build linux

package keeper

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/memory"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

const (
	// keptEnded and keptBytes limit the kept commands and output after their end. The oldest are dropped first.
	keptEnded = 256
	keptBytes = 64 << 20
	// journalled is the number of remembered ended operations.
	journalled = 1024
	// maxLogged limits the lines that a keeper logs.
	maxLogged = 200
)

// keeper keeps commands and the journal of operations, for one broker at a time.
type keeper struct {
	starts starts
	log    *log.Logger
	logged atomic.Int64
	// fault is called with each message; tests inject failures here.
	fault func(link.Message)
	// exit ends the sandbox.
	exit func()
	// life is random and identifies this process 1 of the sandbox.
	life string
	// assign gives the sandbox to a lease; nil if it accepts none.
	assign  func(*wire.Lease) link.Message
	freezer *freezer
	memory  *memory.Tidier
	broker  atomic.Int64 // its pid, 0 if it is not running
	// main is the id of the command whose end ends a companion, "" in a sandbox. ends ends it.
	main string
	ends func(c *command, r wire.Result)

	mu       sync.Mutex // guards the fields below
	commands map[string]*command
	ended    []*command // oldest first
	journal  map[string]*link.Record
	done     []string // ended operations, oldest first
	past     past
	readers  map[uint64]*reader
	session  *session // nil: no broker
	left     *int64   // of the disk limit, in bytes; nil before it is measured
}

// reader is the broker's attachment to a command.
type reader struct {
	c    *command
	flow bool
	// feeds means that the reader sends the command's input.
	feeds bool
}

func newKeeper(s starts, exit func()) *keeper {
	s.freezeLock = new(sync.RWMutex)
	k := &keeper{
		starts:   s,
		log:      log.New(os.Stderr, "keeper: ", 0),
		exit:     exit,
		life:     rand.Text(),
		memory:   memory.NewTidier(),
		commands: map[string]*command{},
		journal:  map[string]*link.Record{},
		readers:  map[uint64]*reader{},
	}
	k.starts.guard = k.guard
	k.freezer = &freezer{freezeLock: s.freezeLock, spared: k.spared, guard: k.guard}
	return k
}

func (k *keeper) logf(format string, args ...any) {
	if k.logged.Add(1) <= maxLogged {
		k.log.Printf(format, args...)
	}
}

// spared returns the processes of this program: the broker, the starter and the supervisors.
func (k *keeper) spared() map[int]bool {
	own := map[int]bool{1: true, os.Getpid(): true, int(k.broker.Load()): true, k.starts.starter.PID(): true}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.commands {
		own[int(c.supervisor.Load())] = true
	}
	return own
}

// session is the link to one broker.
type session struct {
	k    *keeper
	conn *link.Conn

	mu    sync.Mutex // guards the fields below
	dirty map[uint64]bool
	// now and soon wake the sender of changes.
	now, soon chan struct{}
}

// serve serves a broker until it ends.
func (k *keeper) serve(conn *link.Conn) {
	s := &session{
		k:     k,
		conn:  conn,
		dirty: map[uint64]bool{},
		now:   make(chan struct{}, 1),
		soon:  make(chan struct{}, 1),
	}
	k.mu.Lock()
	k.session = s
	k.mu.Unlock()
	gone := make(chan struct{})
	var notices sync.WaitGroup
	notices.Go(func() { s.notify(gone) })
	defer func() {
		close(gone)
		_ = conn.Close() // this ends a current send
		notices.Wait()
		k.guard("leave of a broker", k.leave)
	}()
	for {
		m, err := conn.Receive()
		if err != nil {
			return
		}
		s.guarded(m, s.handle)
	}
}

// brokenOff is the result of a change of files during which the broker died. It stays in the journal, so that the
// change is applied at most once.
const brokenOff = "the broker of the sandbox ended during the operation; it is not known whether it was carried out"

// leave releases the resources of a broker that has ended.
func (k *keeper) leave() {
	k.freezer.thaw()
	k.mu.Lock()
	k.session = nil
	readers := k.readers
	k.readers = map[uint64]*reader{}
	for id, r := range k.journal {
		if !r.Ended && k.commands[id] == nil {
			k.finished(id, wire.Result{Problem: wire.ProblemUnknown, Message: brokenOff})
		}
	}
	k.mu.Unlock()
	for id, r := range readers {
		r.leave(id)
	}
}

// leave ends an attachment.
func (r *reader) leave(id uint64) {
	r.c.detach(id)
	if r.feeds && r.c.in != nil {
		r.c.in.leaves()
	}
}

// guard does work. A panic ends only this work: guard logs and returns it.
func (k *keeper) guard(what string, work func()) (panicked any) {
	defer func() {
		if panicked = recover(); panicked != nil {
			k.logf("%s: %v\n%s", what, panicked, debug.Stack())
		}
	}()
	work()
	return nil
}

// guarded handles one message. A panic affects only this message.
func (s *session) guarded(m link.Message, handle func(link.Message)) {
	if p := s.k.guard("message "+string(m.Kind), func() { handle(m) }); p != nil {
		link.CloseAll(m.Files)
		s.answer(m, link.Message{Problem: wire.ProblemFailed, Text: fmt.Sprintf("process 1 failed: %v", p)})
	}
}

func (s *session) handle(m link.Message) {
	s.k.memory.Busy()
	if s.k.fault != nil {
		s.k.fault(m)
	}
	switch m.Kind {
	case link.Start:
		s.start(m)
		return
	case link.Attach:
		s.attach(m)
	case link.Open:
		s.open(m)
	case link.Detach, link.Read, link.Input:
		s.reader(m)
	case link.End:
		go s.guarded(m, s.end) // it ends with the command
	case link.Assign:
		go s.guarded(m, s.assign) // it ends once the lease is in force or refused
	case link.Freeze:
		go s.guarded(m, s.freeze) // it ends within the limit
	case link.Thaw:
		s.k.freezer.thaw()
		s.answer(m, link.Message{})
	case link.Shutdown:
		s.k.exit()
	case link.Begin, link.Done, link.Forget:
		s.answer(m, s.k.note(m))
	default:
		s.answer(m, link.Message{Problem: wire.ProblemInvalid, Text: "process 1 does not support " + string(m.Kind)})
	}
	link.CloseAll(m.Files)
}

// answer answers a message. A broker that is gone reads no answer.
func (s *session) answer(m link.Message, a link.Message) {
	a.Kind, a.Seq = link.Answer, m.Seq
	err := s.conn.Send(a)
	if errors.Is(err, os.ErrClosed) { // the command was dropped meanwhile
		err = s.conn.Send(link.Message{Kind: link.Answer, Seq: m.Seq, Problem: wire.ProblemNotFound, Text: forgotten})
	}
	if err != nil {
		_ = s.conn.Close() // after its restart, the broker asks again
	}
}

// start starts a command if its id is free.
func (s *session) start(m link.Message) {
	c, refusal := s.k.newCommand(m)
	if c == nil {
		link.CloseAll(m.Files)
		s.answer(m, refusal)
		return
	}
	s.k.join(m, c)
	s.answer(m, link.Message{Files: []*os.File{c.beginning()}, Log: c.log != nil})
	starts := s.k.starts
	starts.dir = m.Files[0]
	go func() { // it ends with the command
		defer starts.dir.Close() // if the command does not start
		s.k.run(c, starts)
	}()
}

// run runs a command and always records a result.
func (k *keeper) run(c *command, s starts) {
	r := wire.Result{Problem: wire.ProblemFailed, Message: "process 1 failed to run the command"}
	p := k.guard("command "+c.id, func() {
		if c.spec.Verifier != nil {
			r = k.runVerifier(c, s)
			return
		}
		r = c.run(s)
	})
	if p != nil {
		k.guard("kill command "+c.id, c.kill)
	}
	k.guard("end of command "+c.id, func() { k.end(c, r) })
}

// forgotten is the error for a command that cannot be followed.
const forgotten = "the sandbox does not know a command with that id (any more): it was stopped since, or has run " +
	"many others"

var errDirectory = errors.New("the command arrived without its working directory")

// newCommand adds a new command and records it in the journal. If its id is taken, it returns nil and the
// answer.
func (k *keeper) newCommand(m link.Message) (*command, link.Message) {
	if m.Command == nil || len(m.Files) != 1 {
		panic(errDirectory)
	}
	c := &command{id: m.ID, spec: *m.Command, ended: make(chan struct{})}
	if c.spec.Verifier == nil {
		c.spares = k.freezer.spares
	}
	c.changed = func(waits bool) { k.mark(c, waits) }
	if c.spec.Stdin {
		c.in = newInput(func() { c.changed(true) }, func() { k.guard("kill command "+c.id, c.kill) })
	}
	if err := c.openOutput(k.starts.create); err != nil {
		return nil, link.Message{Problem: wire.ProblemFailed, Text: "create files for the output: " + err.Error()}
	}
	if refusal, refused := k.add(m, c); refused {
		c.drop()
		return nil, refusal
	}
	return c, link.Message{}
}

// add adds a command unless its id is taken.
func (k *keeper) add(m link.Message, c *command) (refusal link.Message, refused bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if began := k.begin(m, k.journal[c.id]); began.Began != nil {
		return began, true
	}
	if m.Again && k.past.mayHave(c.id, time.Now()) {
		delete(k.journal, c.id)
		return link.Message{Problem: wire.ProblemNotFound, Text: forgotten}, true
	}
	k.commands[c.id] = c
	return link.Message{}, false
}

// join attaches the broker to a command, and returns where its reader continues after the kept output.
func (k *keeper) join(m link.Message, c *command) (at [2]int64) {
	k.mu.Lock()
	k.readers[m.Attachment] = &reader{c: c, flow: m.Flow, feeds: m.Feeds}
	k.mu.Unlock()
	if m.Feeds && c.in != nil {
		c.in.feeds()
	}
	if m.Flow {
		for i, s := range c.streams {
			if s != nil {
				at[i] = s.attach(m.Attachment, m.Offsets[i])
			}
		}
	}
	if m.Kind == link.Attach { // a starting command has no state yet
		k.mark(c, false)
	}
	return at
}

func (s *session) attach(m link.Message) {
	s.k.mu.Lock()
	c := s.k.commands[m.ID]
	s.k.mu.Unlock()
	if c == nil {
		s.answer(m, link.Message{Problem: wire.ProblemNotFound, Text: forgotten})
		return
	}
	at := s.k.join(m, c)
	s.answer(m, link.Message{Files: []*os.File{c.beginning()}, Log: c.log != nil, Offsets: at})
}

// open opens a part of the output of a reader's command.
func (s *session) open(m link.Message) {
	s.k.mu.Lock()
	r := s.k.readers[m.Attachment]
	s.k.mu.Unlock()
	if r != nil {
		if f := r.c.part(m.Part); f != nil {
			s.answer(m, link.Message{Files: []*os.File{f}})
			return
		}
	}
	s.answer(m, link.Message{Problem: wire.ProblemNotFound, Text: "that part of the command's output is not kept"})
}

// reader handles a reader's message, which gets no answer.
func (s *session) reader(m link.Message) {
	s.k.mu.Lock()
	r := s.k.readers[m.Attachment]
	if m.Kind == link.Detach {
		delete(s.k.readers, m.Attachment)
	}
	s.k.mu.Unlock()
	if r == nil {
		return
	}
	switch m.Kind {
	case link.Detach:
		r.leave(m.Attachment)
	case link.Read:
		for i, stream := range r.c.streams {
			if stream != nil {
				stream.read(m.Attachment, m.Offsets[i])
			}
		}
	case link.Input:
		if in := r.c.in; in != nil {
			in.put(m.Offsets[0], m.Data, m.EOF)
			if m.Cut {
				in.cutOff()
			}
		}
	}
}

// end ends a command and everything that it started.
func (s *session) end(m link.Message) {
	s.k.mu.Lock()
	c := s.k.commands[m.ID]
	s.k.mu.Unlock()
	if c == nil {
		s.answer(m, link.Message{}) // it is not running
		return
	}
	c.killed.Store(true)
	c.kill()
	select {
	case <-c.ended:
		s.answer(m, link.Message{})
	case <-time.After(killTime):
		s.answer(m, link.Message{Problem: wire.ProblemFailed, Text: "processes of command " + m.ID + " could not be killed"})
	}
}

func (s *session) freeze(m link.Message) {
	if m.All {
		s.k.endVerifiers()
	}
	if err := s.k.freezer.freeze(m.All); err != nil {
		s.answer(m, link.Message{Problem: wire.ProblemFailed, Text: err.Error()})
		return
	}
	s.answer(m, link.Message{})
}

// end records the result of a command, and drops the oldest.
func (k *keeper) end(c *command, r wire.Result) {
	c.mu.Lock()
	c.result = &r
	c.spec.Args, c.spec.Path, c.spec.Text = nil, "", "" // save memory: many ended commands are kept
	if len(c.shell.Raw()) == 0 {
		c.spec.Env = nil
	}
	c.mu.Unlock()
	close(c.ended)
	for _, s := range c.streams {
		if s != nil {
			s.end()
		}
	}
	c.kept = c.bytes()
	k.memory.Busy()
	k.mu.Lock()
	k.ended = append(k.ended, c)
	k.finished(c.id, r)
	var sum int64
	for _, e := range k.ended {
		sum += e.kept
	}
	for len(k.ended) > 1 && (len(k.ended) > keptEnded || sum > keptBytes) {
		oldest := k.ended[0]
		k.ended = k.ended[1:]
		sum -= oldest.kept
		delete(k.commands, oldest.id)
		oldest.drop()
	}
	k.mu.Unlock()
	k.mark(c, false)
	if c.id == k.main && k.ends != nil {
		k.ends(c, r)
	}
}
