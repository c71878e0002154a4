package processes

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/execs"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/lifecycle"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Agents implements service.Processes.
func (v *Service) Agents(ctx context.Context, f sandbox.AgentFilter) (list []sandbox.Agent, err error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	err = v.Store.Read(ctx, func(tx *ledger.Tx) error {
		rows, err := execs.In(tx).Agents(f)
		list = nil
		for i := range rows {
			list = append(list, rows[i].Domain())
		}
		return err
	})
	return list, err
}

// Connect implements service.Connector.
func (v *Service) Connect(ctx context.Context, r sandbox.ProcessRef) (net.Conn, error) {
	p, s, err := v.readProcessRow(ctx, r)
	switch {
	case err != nil:
		return nil, err
	case p.Port == 0:
		return nil, sandbox.Errorf(sandbox.NotFound, "lease %s: process %s is not an agent: it has no endpoint",
			r.LeaseRef.ID, r.Name).WithReason(sandbox.ReasonProcessNotFound)
	case !p.State.Live():
		return nil, errProcessEnded(p.Domain())
	}
	leave, err := v.connections.enter(s.ID)
	if err != nil {
		return nil, err
	}
	u, err := v.Core.BeginUse(ctx, r.LeaseRef, lifecycle.ClaimTTL, nil)
	if err != nil {
		leave()
		return nil, err
	}
	u.Changes = true
	c := &connection{ref: r, port: p.Port, leave: leave, use: u, opened: make(chan struct{}), over: make(chan struct{})}
	if !v.Core.Background(v.begin(c)) {
		c.cut()
		leave()
		return nil, errors.Join(lifecycle.ErrClosing, u.Leave(context.WithoutCancel(ctx), false, nil))
	}
	if err := v.awaitOpen(ctx, c); err != nil {
		return nil, errors.Join(u.Explain(ctx, err), c.Close())
	}
	return c, nil
}

// connection is the caller's side of a connection to an agent. It outlives the call that opens it.
type connection struct {
	net.Conn
	ref    sandbox.ProcessRef
	port   int
	leave  func()
	use    *lifecycle.Use
	cut    context.CancelFunc
	opened chan struct{} // closed when the agent has accepted it
	over   chan struct{} // closed when its end is recorded
	why    error         // why it broke, nil if the agent ended it; set before over is closed
}

// isOpen reports whether the agent has accepted the connection: then its bytes cannot be repeated.
func (c *connection) isOpen() bool {
	select {
	case <-c.opened:
		return true
	default:
		return false
	}
}

// Read implements io.Reader. A connection that breaks ends with the reason.
func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		if <-c.over; c.why != nil {
			err = c.why
		}
	}
	return n, err
}

// Write implements io.Writer. It drops what an agent that has ended its side does not read, as a network does: the
// agent may answer before it has read the whole request.
func (c *connection) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if errors.Is(err, io.ErrClosedPipe) {
		if <-c.over; c.why == nil {
			return len(p), nil
		}
	}
	return n, err
}

// Close ends the connection, and waits until its end is recorded.
func (c *connection) Close() error {
	c.cut()
	err := c.Conn.Close()
	<-c.over
	return err
}

// begin returns the function that serves a connection. It returns with the service at the latest.
func (v *Service) begin(c *connection) (work func()) {
	caller, agent := net.Pipe()
	life, cut := context.WithCancel(v.Core.Life())
	c.Conn, c.cut = caller, cut
	return func() {
		defer close(c.over)
		defer c.leave()
		defer cut()
		c.why = v.connect(life, c, driver.Connection{Opened: func() { close(c.opened) }, From: agent, To: agent})
		_ = agent.Close() // never fails

		if err := c.use.Leave(context.Background(), true, nil); err != nil { // on failure the use runs out
			v.Log.Warn("processes: ending a connection to an agent", lifecycle.About(&c.use.Row), "process", c.ref.Name,
				"error", err)
		}
	}
}

// connect copies bytes in both directions until the connection ends.
func (v *Service) connect(ctx context.Context, c *connection, to driver.Connection) error {
	x, h := c.use.On()
	for tries := int64(1); ; tries++ {
		if err := x.Connect(ctx, h, c.port, to); c.isOpen() || !isAsleep(err) {
			return err
		}
		if err := v.Core.Pause(ctx, nil, micro.At(v.Store.Now().Add(lifecycle.Backoff(tries)))); err != nil {
			return err
		}
	}
}

// awaitOpen waits until the agent has accepted a connection, as long as its process lives and for
// sandbox.AgentStart.
func (v *Service) awaitOpen(ctx context.Context, c *connection) error {
	bounded, stop := context.WithTimeout(ctx, sandbox.AgentStart)
	defer stop()
	dead := make(chan error, 1)
	go func() { // ends with bounded
		p, err := v.awaitProcess(bounded, c.ref, func(p *execs.Process) bool { return !p.State.Live() })
		if err == nil {
			err = errProcessEnded(p)
		}
		dead <- err
	}()
	select {
	case <-c.opened:
		return nil
	case <-c.over:
		return cmp.Or(c.why, errNotAccepted(c.ref))
	case err := <-dead:
		if ctx.Err() == nil && bounded.Err() != nil {
			return sandbox.Errorf(sandbox.Timeout, "lease %s: agent %s did not accept a connection within %s: read the log "+
				"of its process", c.ref.LeaseRef.ID, c.ref.Name, sandbox.AgentStart).WithReason(sandbox.ReasonConnectionFailed)
		}
		return err
	}
}

func errNotAccepted(r sandbox.ProcessRef) error {
	return sandbox.Errorf(sandbox.Failed, "lease %s: agent %s did not accept the connection: retry",
		r.LeaseRef.ID, r.Name).WithReason(sandbox.ReasonConnectionFailed)
}

// connections counts the open connections of each sandbox.
type connections struct {
	mu   sync.Mutex // guards open
	open map[string]int
}

// enter counts a connection until the returned function is called. Errors: CapacityExceeded.
func (c *connections) enter(sandboxID string) (leave func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[sandboxID] >= sandbox.MaxConnections {
		return nil, sandbox.Errorf(sandbox.CapacityExceeded,
			"sandbox %s has %d open connections to its agents, which is the maximum: close one first",
			sandboxID, sandbox.MaxConnections)
	}
	c.open[sandboxID]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.open[sandboxID]--; c.open[sandboxID] == 0 {
			delete(c.open, sandboxID)
		}
	}, nil
}
