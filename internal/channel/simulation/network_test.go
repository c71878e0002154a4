package simulation_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// dice is a random source that goroutines share.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func newDice(seed uint64) *dice { return &dice{r: rand.New(rand.NewPCG(seed, 1))} }

// n returns a number below max.
func (d *dice) n(limit int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(limit)
}

// upTo returns a duration below max.
func (d *dice) upTo(limit time.Duration) time.Duration { return time.Duration(d.n(int(limit))) }

// once returns true once in n.
func (d *dice) once(n int) bool { return d.n(n) == 0 }

var errBroken = errors.New("the carrier broke")

// network creates carriers that delay, break and linger.
type network struct {
	*dice
	wg   sync.WaitGroup
	calm bool // carriers neither break nor deliver late

	mu     sync.Mutex
	frozen chan struct{}  // closed when the guest thaws; nil while it runs
	seen   map[string]int // counts of events, over all seeds
	pipes  map[*pipe]bool
}

func newNetwork(d *dice, seen map[string]int) *network {
	return &network{dice: d, seen: seen, pipes: map[*pipe]bool{}}
}

// saw counts an event.
func (n *network) saw(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen[what]++
}

// freeze stops all carriers until thaw.
func (n *network) freeze() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.frozen = make(chan struct{})
}

func (n *network) thaw() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.frozen)
	n.frozen = nil
}

func (n *network) awaitThaw() {
	n.mu.Lock()
	frozen := n.frozen
	n.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
}

// end breaks all carriers and waits for their goroutines.
func (n *network) end() {
	n.mu.Lock()
	for p := range n.pipes {
		p.abort()
	}
	n.mu.Unlock()
	n.wg.Wait()
}

// connect creates a carrier. Either direction may break after some bytes, and its ends notice that at different times.
func (n *network) connect() (client, guest net.Conn) {
	up, down := n.pipe(), n.pipe()
	return &end{in: down, out: up}, &end{in: up, out: down}
}

func (n *network) pipe() *pipe {
	p := &pipe{network: n, budget: -1}
	p.cond.L = &p.mu
	if !n.calm && !n.once(4) {
		p.budget = n.n(1 << (4 + n.n(14)))
	}
	n.mu.Lock()
	n.pipes[p] = true
	n.mu.Unlock()
	n.wg.Go(func() {
		p.deliver()
		n.mu.Lock()
		delete(n.pipes, p)
		n.mu.Unlock()
	})
	return p
}

// pipe is one direction of a carrier.
type pipe struct {
	*network
	budget int // bytes until it breaks, below 0 for never

	mu      sync.Mutex
	cond    sync.Cond
	flight  []byte // written and not delivered
	arrived []byte
	closed  bool // by the writer: the reader gets the bytes in flight, then the end
	unread  bool // by the reader: a writer notices
	broken  bool
}

const flightLimit = 64 << 10

func (p *pipe) deliver() {
	for {
		p.mu.Lock()
		for len(p.flight) == 0 && !p.closed && !p.broken && !p.unread {
			p.cond.Wait()
		}
		done := p.broken || p.unread || len(p.flight) == 0
		p.mu.Unlock()
		switch { // most bytes arrive soon, some late, even after the writer has closed the carrier
		case !p.calm && p.once(50):
			time.Sleep(p.upTo(40 * time.Second))
		default:
			time.Sleep(p.upTo(20 * time.Millisecond))
		}
		p.awaitThaw()
		p.mu.Lock()
		if done || p.broken || p.unread {
			p.broken = true
			p.cond.Broadcast()
			p.mu.Unlock()
			return
		}
		k := min(len(p.flight), 1+p.n(1<<p.n(17)))
		if p.budget >= 0 {
			k = min(k, p.budget)
			p.budget -= k
			p.broken = p.budget == 0
		}
		p.arrived = append(p.arrived, p.flight[:k]...)
		p.flight = p.flight[k:]
		p.cond.Broadcast()
		p.mu.Unlock()
	}
}

func (p *pipe) abort() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = true
	p.cond.Broadcast()
}

func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.arrived) == 0 && !p.broken && !p.unread {
		p.cond.Wait()
	}
	if p.unread || len(p.arrived) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.arrived)
	p.arrived = p.arrived[n:]
	return n, nil
}

func (p *pipe) write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	total := 0
	for len(b) > 0 {
		for len(p.flight) >= flightLimit && !p.broken && !p.closed {
			p.cond.Wait()
		}
		if p.broken || p.closed {
			return total, errBroken
		}
		n := min(len(b), flightLimit-len(p.flight))
		p.flight, b = append(p.flight, b[:n]...), b[n:]
		total += n
		p.cond.Broadcast()
	}
	return total, nil
}

// end is one side of a carrier.
type end struct {
	net.Conn // nil: the channel may only use Read, Write and Close
	in, out  *pipe
}

func (e *end) Read(b []byte) (int, error)  { return e.in.read(b) }
func (e *end) Write(b []byte) (int, error) { return e.out.write(b) }

func (e *end) Close() error {
	for _, p := range []*pipe{e.in, e.out} {
		p.mu.Lock()
		if p == e.in {
			p.unread = true
		} else {
			p.closed = true
		}
		p.cond.Broadcast()
		p.mu.Unlock()
	}
	return nil
}

// sleep waits, or returns false when ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
