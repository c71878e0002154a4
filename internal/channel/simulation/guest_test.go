package simulation_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// keeper is the part of the guest that outlives its broker: commands, files and the journal.
type keeper struct {
	*network
	ctx context.Context
	wg  sync.WaitGroup

	mu       sync.Mutex
	commands map[string]*command
	starts   map[string]int
	applied  map[string]int // how often each file was written
	broker   *broker
}

// command emits numbered lines over time, to its end.
type command struct {
	mu    sync.Mutex
	cond  sync.Cond
	out   []byte
	ended bool
}

func newKeeper(ctx context.Context, n *network) *keeper {
	k := &keeper{
		network:  n,
		ctx:      ctx,
		commands: map[string]*command{},
		starts:   map[string]int{},
		applied:  map[string]int{},
	}
	k.broker = k.newBroker(channel.NewJournal())
	return k
}

func (k *keeper) start(id string) *command {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.starts[id]++
	c := new(command)
	c.cond.L = &c.mu
	k.commands[id] = c
	k.wg.Go(func() {
		for i := range 5 + k.n(60) {
			sleep(k.ctx, k.upTo(2*time.Second))
			line := fmt.Sprintf("%s line %d %0*d\n", id, i, 1+k.n(1<<k.n(14)), i)
			c.mu.Lock()
			c.out = append(c.out, line...)
			c.cond.Broadcast()
			c.mu.Unlock()
		}
		c.mu.Lock()
		c.ended = true
		c.cond.Broadcast()
		c.mu.Unlock()
	})
	return c
}

// send writes a command's output from an offset, until it ends.
func (c *command) send(ctx context.Context, out io.Writer, offset int64) wire.Result {
	defer context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.cond.Broadcast()
	})()
	for {
		c.mu.Lock()
		for int64(len(c.out)) == offset && !c.ended && ctx.Err() == nil {
			c.cond.Wait()
		}
		piece, ended := c.out[offset:], c.ended
		c.mu.Unlock()
		if ctx.Err() != nil {
			return wire.Result{Problem: wire.ProblemFailed, Message: "given up"}
		}
		if len(piece) == 0 && ended {
			return wire.Result{StdoutBytes: offset}
		}
		n, err := out.Write(piece)
		if offset += int64(n); err != nil {
			return wire.Result{Problem: wire.ProblemFailed, Message: err.Error()}
		}
	}
}

func (k *keeper) handle(ctx context.Context, r channel.Request, in io.Reader, out *wire.Writer) wire.Result {
	switch r.Op {
	case channel.OpExec:
		return k.start(r.ID).send(ctx, out.Stdout(), 0)
	case channel.OpFollow:
		k.mu.Lock()
		c := k.commands[r.ID]
		k.mu.Unlock()
		if c == nil {
			return wire.Result{Problem: wire.ProblemNotFound}
		}
		return c.send(ctx, out.Stdout(), r.Follow.StdoutOffset)
	case channel.OpFile:
		content, err := io.ReadAll(in)
		if err != nil || !sleep(ctx, k.upTo(3*time.Second)) {
			return wire.Result{Problem: wire.ProblemFailed, Message: fmt.Sprint("nothing was changed: ", err)}
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		k.applied[string(r.File.Path)]++
		return wire.Result{Message: fmt.Sprint(len(content))}
	default:
		return wire.Result{Problem: wire.ProblemInvalid}
	}
}

// broker is the part of the guest that speaks the protocol. Its actions after its crash have no effect.
type broker struct {
	*channel.Server
	journal channel.Journal
	mu      sync.Mutex
	crashed bool
}

func (k *keeper) newBroker(journal channel.Journal) *broker {
	b := &broker{journal: journal}
	b.Server = channel.NewServer(k.handle, channel.ServerConfig{Journal: b})
	return b
}

func (b *broker) Begin(id string, op channel.Op) (*channel.Record, error) {
	return b.journal.Begin(id, op)
}

func (b *broker) End(id string, op channel.Op, result wire.Result) error {
	if b.isCrashed() {
		return nil
	}
	return b.journal.End(id, op, result)
}

func (b *broker) Forget(id string, op channel.Op) error {
	if b.isCrashed() {
		return nil
	}
	return b.journal.Forget(id, op)
}

func (b *broker) isCrashed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.crashed
}

// restart ends the broker without informing its journal, and starts another.
func (k *keeper) restart() {
	k.mu.Lock()
	old := k.broker
	k.broker = k.newBroker(old.journal)
	k.mu.Unlock()
	old.mu.Lock()
	old.crashed = true
	old.mu.Unlock()
	k.wg.Go(func() { old.Close() }) //nolint:errcheck // it always returns nil
}

// dial implements channel.Dial.
func (k *keeper) dial(ctx context.Context) (net.Conn, error) {
	if !sleep(ctx, k.upTo(50*time.Millisecond)) {
		return nil, ctx.Err()
	}
	if k.once(10) {
		return nil, errBroken
	}
	k.saw("dial")
	client, guest := k.connect()
	k.mu.Lock()
	b := k.broker
	k.mu.Unlock()
	k.wg.Go(func() { b.Serve(k.ctx, guest) }) //nolint:errcheck // the client reports what matters
	return client, nil
}
