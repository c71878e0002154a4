//go:build linux

package keeper

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/link"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/output"
)

const (
	// Window is how far, in bytes, a command may get ahead of a reader that it waits for, beyond the kept output.
	Window = 1 << 20
	// drainTime is how long a pump reads the output of processes that a command left behind.
	drainTime = 200 * time.Millisecond
	// drainBytes limits that output; a pipe holds less.
	drainBytes = 1 << 20
	pumpSize   = 32 << 10
)

// stream keeps the start of a command's output, and a window of the rest for readers that it waits for.
//
//	head    the bytes from 0 to link.Head
//	rest    the bytes from link.Head to kept
//	window  the byte at offset n at n modulo Window, for the last bytes beyond kept
//
// Only the head has its file from the start. Most commands print no more, and it takes long to create a file on disk:
// ext4 looks at each one that was deleted within the last minute.
type stream struct {
	head    *os.File
	at      int64 // where the head begins in its file
	create  output.Create
	changed func(waits bool)

	mu           sync.Mutex // guards the fields below
	moved        *sync.Cond // signals that a reader moved
	rest, window *os.File   // nil until needed
	limit        int64      // how much may be kept, known with rest
	total        int64
	kept         int64
	full         bool
	unseen       bool // the window could not be created
	ended        bool
	readers      map[uint64]int64 // positions of the readers that it waits for
}

// newStream returns the stream whose head begins at an offset of a file. create creates the file of the rest.
func newStream(head *os.File, at int64, create output.Create, changed func(waits bool)) *stream {
	s := &stream{head: head, at: at, create: create, changed: changed, readers: map[uint64]int64{}}
	s.moved = sync.NewCond(&s.mu)
	return s
}

// Write never fails. It blocks while a reader is too far behind.
func (s *stream) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		rest = rest[s.take(rest):]
		s.changed(len(p) < gathered)
	}
	return len(p), nil
}

func (s *stream) take(p []byte) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.full {
		n, err := s.keep(p)
		s.kept += int64(n)
		s.total += int64(n)
		s.full = err != nil || s.kept == s.limit
		return n
	}
	room := s.room()
	for ; room <= 0; room = s.room() {
		s.moved.Wait()
	}
	at := s.total % Window
	n := min(int64(len(p)), room, Window-at)
	if len(s.readers) > 0 {
		s.show(p[:n], at)
	}
	s.total += n
	return int(n)
}

// keep writes the beginning of p to the head or the rest.
func (s *stream) keep(p []byte) (int, error) {
	if room := link.Head - s.kept; room > 0 {
		return s.head.WriteAt(p[:min(int64(len(p)), room)], s.at+s.kept)
	}
	if s.rest == nil {
		file, limit, err := s.create(output.DiskLimit)
		if err != nil {
			return 0, err
		}
		s.rest, s.limit = file, limit
	}
	return s.rest.WriteAt(p[:min(int64(len(p)), s.limit-s.kept)], s.kept-link.Head)
}

// show writes to the window. If it cannot be created, its readers fail when they open it. A later window would have a
// hole where they read on.
func (s *stream) show(p []byte, at int64) {
	if s.window == nil && !s.unseen {
		window, err := output.InMemory()
		s.window, s.unseen = window, err != nil
	}
	if s.unseen {
		return
	}
	_, _ = s.window.WriteAt(p, at) // in memory; if memory runs out, the kernel kills programs
}

// room is how much can be written before a reader would miss some.
func (s *stream) room() int64 {
	room := int64(Window)
	for _, at := range s.readers {
		room = min(room, max(at, s.kept)+Window-s.total)
	}
	return room
}

// attach makes the command wait for a reader that starts at an offset. It returns where the reader continues
// after the kept output; bytes in between are lost.
func (s *stream) attach(reader uint64, at int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total > s.kept {
		at = max(at, s.total)
	}
	s.readers[reader] = at
	return max(at, s.kept)
}

func (s *stream) read(reader uint64, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, attached := s.readers[reader]; attached && at > before {
		s.readers[reader] = min(at, s.total)
		s.moved.Broadcast()
	}
}

func (s *stream) detach(reader uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.readers, reader)
	s.moved.Broadcast()
	s.closeWindow()
}

// end is called at the end of the command.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.closeWindow()
}

// closeWindow closes the window after the end of the command, once no reader needs it.
func (s *stream) closeWindow() {
	if s.ended && len(s.readers) == 0 && s.window != nil {
		_ = s.window.Close() // its content is not needed
		s.window = nil
	}
}

// open returns the file of a part, nil if it has none.
func (s *stream) open(window bool) *os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	if window {
		return s.window
	}
	return s.rest
}

// counts returns how much was written, how much is kept, and whether part is missing.
func (s *stream) counts() (total, kept int64, dropped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total, s.kept, s.total > s.kept
}

// pump keeps a command's output, until all writers have closed it or drain ends.
type pump struct {
	r    *os.File
	to   io.Writer
	done chan struct{}

	mu    sync.Mutex
	until time.Time // set at the end of the command
}

// startPump starts a pump. guard does its work.
func startPump(r *os.File, to io.Writer, guard func(work func())) *pump {
	p := &pump{r: r, to: to, done: make(chan struct{})}
	go guard(func() {
		defer close(p.done)
		p.run()
	})
	return p
}

var pumpBuffers = sync.Pool{New: func() any { return new([pumpSize]byte) }}

func (p *pump) run() {
	memory := pumpBuffers.Get().(*[pumpSize]byte) //nolint:forcetypeassert // the pool's only type
	defer pumpBuffers.Put(memory)
	b := memory[:]
	for late := 0; ; {
		until := p.ending()
		if !until.IsZero() {
			if late > drainBytes {
				return
			}
			// Read what is in the pipe even if earlier writes took long.
			if soon := time.Now().Add(5 * time.Millisecond); soon.After(until) {
				until = soon
			}
			if err := p.r.SetReadDeadline(until); err != nil {
				return
			}
		}
		n, err := p.r.Read(b)
		_, _ = p.to.Write(b[:n]) // never fails
		if !until.IsZero() {
			late += n
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && until.IsZero() {
			continue // the command ended meanwhile
		}
		if err != nil {
			return
		}
	}
}

func (p *pump) ending() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.until
}

// end lets the pump read what the ended command has written.
func (p *pump) end() {
	p.mu.Lock()
	p.until = time.Now().Add(drainTime)
	p.mu.Unlock()
	_ = p.r.SetReadDeadline(time.Now()) // wakes it; it then sets its own deadline
}

// join waits until a pump ends.
func (p *pump) join() {
	<-p.done
	_ = p.r.Close() // the pump has ended
}

// endPumps ends pumps together, and waits for them. A process that was left behind may hold their pipes open.
func endPumps(pumps []*pump) {
	for _, p := range pumps {
		p.end()
	}
	for _, p := range pumps {
		p.join()
	}
}

// pipe returns a pipe. This side's end does not block a thread. A command of the given user can open the
// other end again as /dev/stdout. Only processes that may trace the command can find it. gVisor cannot change
// the mode of a pipe; there the creating thread determines the owner.
func (s starts) pipe(uid, gid int) (r, w *os.File, err error) {
	if r, w, err = newPipe(); err != nil {
		return nil, nil, err
	}
	if err = openToAll(w); err == nil {
		return r, w, nil
	}
	refused := errors.Is(err, unix.EPERM)
	if err = errors.Join(err, r.Close(), w.Close()); !refused {
		return nil, nil, err
	}
	err = s.as(uid, gid, func() (err error) {
		r, w, err = newPipe()
		return err
	})
	return r, w, err
}

func newPipe() (r, w *os.File, err error) {
	r, w, err = os.Pipe()
	if errors.Is(err, unix.EMFILE) {
		err = errors.New("process 1 runs too many commands")
	}
	return r, w, err
}

// openToAll lets every user reopen a pipe that belongs to process 1's user.
func openToAll(pipe *os.File) error {
	raw, err := pipe.SyscallConn() // Fd would make it blocking
	if err != nil {
		return err
	}
	ctlErr := raw.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o666) })
	return errors.Join(ctlErr, err)
}
