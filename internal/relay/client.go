package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// ErrSilent means that a relay takes connections and answers none.
var ErrSilent = errors.New("the relay takes connections and does not answer")

// Open connects to the control socket of a relay.
type Open func(ctx context.Context) (net.Conn, error)

// Client asks a relay. It is safe for concurrent use. A connection that breaks breaks its own call, or its own carrier,
// and no later one.
type Client struct {
	direct, command Open
	mux             *mux // over a connection of command
}

// NewClient returns a client that connects by direct, and where that fails by streams over one connection of command,
// which leads to the standard input and output of Connect. Either may be nil. It does not connect.
func NewClient(direct, command Open) *Client {
	c := &Client{direct: direct, command: command}
	if command != nil {
		c.mux = newMux(command)
	}
	return c
}

// Close ends the connection to the command, and so the carriers on it. Others belong to their callers.
func (c *Client) Close() error {
	if c.mux == nil {
		return nil
	}
	return c.mux.close()
}

// Add makes the directory and the socket of a sandbox, and the files of its accounts. Present is success; the files are
// written anew.
func (c *Client) Add(ctx context.Context, id string, accounts Accounts) error {
	_, err := c.ask(ctx, request{Op: opAdd, ID: id, Accounts: accounts})
	return err
}

// Remove closes all connections of a sandbox and removes its directory. Absent is success.
func (c *Client) Remove(ctx context.Context, id string) error {
	_, err := c.ask(ctx, request{Op: opRemove, ID: id})
	return err
}

// End makes process 1 of a sandbox end, by a file in its directory. Errors: ErrUnknown when it has none.
func (c *Client) End(ctx context.Context, id string) error {
	_, err := c.ask(ctx, request{Op: opEnd, ID: id})
	return err
}

// List returns the sandboxes that have a directory, in order.
func (c *Client) List(ctx context.Context) ([]string, error) {
	a, err := c.ask(ctx, request{Op: opList})
	return a.Sandboxes, err
}

// Probe returns once the relay answers on a connection of its own, for which it has a limited time from the connection on.
// Errors: ErrSilent when the relay does not; any other says nothing of the relay.
func (c *Client) Probe(ctx context.Context, limit time.Duration) error {
	fresh := NewClient(c.direct, c.command) // a connection that is dead is no fault of the relay
	conn, err := fresh.open(ctx)
	defer fresh.Close()                 //nolint:errcheck // nothing waits on it any more
	if errors.Is(err, syscall.EAGAIN) { // so many connections wait that none has room
		return errors.Join(ErrSilent, err)
	}
	if err != nil {
		return fmt.Errorf("connect to the relay: %w", err)
	}
	defer conn.Close() //nolint:errcheck // as above
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err = exchange(limited, conn, request{Op: opList})
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return errors.Join(ErrSilent, err)
	}
	return err
}

// Dial connects to a sandbox. It waits until the sandbox has dialed the relay, for 30 s at most. The connection has a
// method CloseWrite. Errors: ErrUnknown, ErrAbsent and ErrFull; any other means that the relay was not reached.
func (c *Client) Dial(ctx context.Context, id string) (net.Conn, error) {
	r := request{Op: opAttach, ID: id, Wait: maxWait}
	if end, ok := ctx.Deadline(); ok {
		left := max(time.Until(end), 0)
		r.Wait = min(left-left/answerPart, maxWait) // so that the answer of a relay that works comes before the end
	}
	conn, a, err := c.call(ctx, r)
	if err != nil || !a.Lent {
		return conn, err
	}
	return borrow(ctx, conn)
}

// answerPart is the part of a limit that is left for the relay's answer.
const answerPart = 8

// ask makes a request whose answer is all that comes.
func (c *Client) ask(ctx context.Context, r request) (answer, error) {
	conn, a, err := c.call(ctx, r)
	if err == nil {
		_ = conn.Close() // everything was read
	}
	return a, err
}

// call makes a request, and returns its connection unless it is refused.
func (c *Client) call(ctx context.Context, r request) (net.Conn, answer, error) {
	conn, err := c.open(ctx)
	if err != nil {
		return nil, answer{}, fmt.Errorf("connect to the relay: %w", err)
	}
	_, direct := conn.(*net.UnixConn)
	r.Lend = borrows && direct && r.Op == opAttach
	a, err := exchange(ctx, conn, r)
	if err == nil {
		err = a.asError()
	}
	if err != nil {
		_ = conn.Close() // the first error counts
		return nil, a, err
	}
	return conn, a, nil
}

// open connects to the control socket.
func (c *Client) open(ctx context.Context) (net.Conn, error) {
	var directErr error
	if c.direct != nil {
		conn, err := c.direct(ctx)
		if err == nil || c.mux == nil {
			return conn, err
		}
		directErr = err
	}
	if c.mux == nil {
		return nil, errors.New("there is no way to it")
	}
	conn, err := c.mux.open(ctx)
	if err != nil {
		return nil, errors.Join(directErr, err)
	}
	return conn, nil
}

// exchange sends a request and reads its answer, and nothing after it.
func exchange(ctx context.Context, conn net.Conn, r request) (a answer, err error) {
	err = within(ctx, conn, func() error {
		if err := writeMessage(conn, r); err != nil {
			return err
		}
		return readMessage(conn, maxAnswer, &a)
	})
	return a, err
}

// within reads and writes until ctx ends.
func within(ctx context.Context, conn net.Conn, do func() error) error {
	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(cut)
		_ = conn.SetDeadline(time.Unix(1, 0)) // a connection that is closed already needs none
	})
	err := do()
	if !stop() {
		<-cut
		return errors.Join(ctx.Err(), err)
	}
	if err != nil {
		return fmt.Errorf("ask the relay: %w", err)
	}
	return nil
}
