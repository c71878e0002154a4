//go:build linux

package keeper

import (
	"os"
	"sync"
	"time"
)

// input passes a command's input on. It takes some before the command has begun.
//
// A command that took a part of its input for the whole would report a wrong result. So its end of the pipe stays open when
// the input breaks off: who sends it may come back, and send it once more. One that does not makes the command end.
type input struct {
	changed func()
	kill    func() // ends the command, if it runs

	mu     sync.Mutex // guards what follows
	more   *sync.Cond
	w      *os.File // once the command has begun
	queue  []byte
	queued int64 // the offset behind the queue
	taken  int64
	eof    bool
	cut    bool // the rest will not come
	closed bool
	// feeders are who sends it. Without any, waiting is how long it is waited for one.
	feeders int
	waiting *time.Timer
}

// maxQueued bounds what waits for a command to read it, in bytes. The broker sends no more before some was taken.
const maxQueued = 256 << 10

// feederTime is how long a command waits for the rest of its input when who sent it has gone. A caller that has lost its
// connection comes back within half of that.
const feederTime = time.Minute

func newInput(changed, kill func()) *input {
	in := &input{changed: changed, kill: kill}
	in.more = sync.NewCond(&in.mu)
	return in
}

// begin writes the input to a file and closes that, until the input ends or stop is called.
func (in *input) begin(w *os.File) {
	in.mu.Lock()
	in.w = w
	in.mu.Unlock()
	go in.run(w)
}

// put takes bytes from an offset on. Those that came before are left out, and those that do not follow are refused.
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
	in.queue = append(in.queue, p...)
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

// feeds adds one who sends the input.
func (in *input) feeds() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.feeders++
	if in.waiting != nil {
		in.waiting.Stop()
		in.waiting = nil
	}
}

// leaves takes away one who sent it.
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
		_ = in.w.SetWriteDeadline(time.Now()) // ends a write under way
	}
}

// cutOff ends the command, as the rest of its input will not come. It changes nothing where no input is missing, or the
// command takes no more.
func (in *input) cutOff() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.eof || in.cut || in.closed {
		return
	}
	in.cut = true
	go in.kill() // ends with the command
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
