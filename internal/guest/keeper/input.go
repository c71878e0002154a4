//go:build linux

package keeper

import (
	"os"
	"sync"
	"time"
)

// input passes a command's input on. It buffers some before the command has started.
//
// If a command took a part of its input for the whole, it would report a wrong result. So its end of the pipe stays
// open if the input breaks off: the sender may come back and send it again. If it does not, the keeper kills the
// command.
type input struct {
	changed func()
	kill    func() // kills the command, if it runs

	mu     sync.Mutex // guards the fields below
	more   *sync.Cond
	w      *os.File // set once the command has started
	queue  []byte
	queued int64 // offset after the queue
	taken  int64
	eof    bool
	cut    bool // the rest will never come
	closed bool
	// feeders is the number of senders. Without one, waiting is the timer for a new one.
	feeders int
	waiting *time.Timer
}

// maxQueued limits the queued input, in bytes. The broker sends more only after the command has taken some.
const maxQueued = 256 << 10

// feederTime is how long a command waits for the rest of its input after its sender is gone. A caller that lost its
// connection reconnects within half of that.
const feederTime = time.Minute

func newInput(changed, kill func()) *input {
	in := &input{changed: changed, kill: kill}
	in.more = sync.NewCond(&in.mu)
	return in
}

// begin writes the input to a file and closes it, until the input ends or stop is called. guard does the work.
func (in *input) begin(w *os.File, guard func(work func())) {
	in.mu.Lock()
	in.w = w
	in.mu.Unlock()
	go guard(func() { in.run(w) })
}

// put accepts bytes from an offset on, and keeps p. It ignores bytes that it already has, and refuses bytes after a
// gap.
func (in *input) put(offset int64, p []byte, eof bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if offset > in.queued || in.eof || in.cut || in.closed {
		return
	}
	p = p[min(int64(len(p)), in.queued-offset):]
	if len(in.queue)+len(p) > maxQueued {
		return
	}
	if len(in.queue) == 0 {
		in.queue = p
	} else {
		in.queue = append(in.queue, p...)
	}
	in.queued += int64(len(p))
	in.eof = eof
	in.more.Signal()
}

func (in *input) run(w *os.File) {
	defer w.Close()
	for {
		in.mu.Lock()
		for len(in.queue) == 0 && !in.eof && !in.closed {
			in.more.Wait()
		}
		p := in.queue
		in.queue = nil
		last := in.closed || len(p) == 0
		in.mu.Unlock()
		if last {
			break
		}
		n, err := w.Write(p)
		in.mu.Lock()
		in.taken += int64(n)
		in.closed = in.closed || err != nil
		in.mu.Unlock()
		in.changed()
	}
	in.mu.Lock()
	in.closed = true
	in.mu.Unlock()
	in.changed()
}

// feeds adds a sender.
func (in *input) feeds() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.feeders++
	if in.waiting != nil {
		in.waiting.Stop()
		in.waiting = nil
	}
}

// leaves removes a sender.
func (in *input) leaves() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.feeders--
	if in.feeders > 0 || in.eof || in.cut || in.closed {
		return
	}
	in.waiting = time.AfterFunc(feederTime, func() {
		in.mu.Lock()
		alone := in.feeders == 0
		in.mu.Unlock()
		if alone {
			in.cutOff()
		}
	})
}

// stop ends the input with its command.
func (in *input) stop() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed = true
	if in.waiting != nil {
		in.waiting.Stop()
	}
	in.more.Signal()
	if in.w != nil {
		_ = in.w.SetWriteDeadline(time.Now()) // ends a current write
	}
}

// cutOff kills the command, because the rest of its input will never come. It does nothing if no input is
// missing, or if the command accepts no more.
func (in *input) cutOff() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.eof || in.cut || in.closed {
		return
	}
	in.cut = true
	go in.kill() // it ends with the command
}

func (in *input) isCut() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.cut
}

func (in *input) state() (taken int64, closed bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.taken, in.closed
}
