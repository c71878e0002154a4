package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// ErrSilent means that the relay accepts connections but does not answer.
var ErrSilent = errors.New("the relay accepts connections but does not answer")

// Open connects to the control socket of a relay.
type Open func(ctx context.Context) (net.Conn, error)

// Client is a client of a relay. It is safe for concurrent use. A broken connection affects only its own call or
// carrier.
type Client struct {
	direct, command Open
	mux             *mux // over one connection of command
}

// NewClient returns a client that connects with direct. If that fails, it uses streams over one connection of command,
// which leads to the standard input and output of Connect. Either may be nil. NewClient does not connect.
func NewClient(direct, command Open) *Client {
	c := &Client{direct: direct, command: command}
	if command != nil {
		c.mux = newMux(command)
	}
	return c
}

// Close closes the connection to the command, which ends its carriers. Other carriers belong to their callers.
func (c *Client) Close() error {
	if c.mux == nil {
		return nil
	}
	return c.mux.close()
}

// Add creates the directory and the socket of a sandbox, and the files of its accounts. If they exist, it rewrites the
// files.
func (c *Client) Add(ctx context.Context, id string, accounts Accounts) error {
	_, err := c.ask(ctx, request{Op: opAdd, ID: id, Accounts: accounts})
	return err
}

// Remove closes all connections of a sandbox and removes its directory. An absent sandbox is success.
func (c *Client) Remove(ctx context.Context, id string) error {
	_, err := c.ask(ctx, request{Op: opRemove, ID: id})
	return err
}

// End makes process 1 of a sandbox end, through a file in its directory. Errors: ErrUnknown if there is no directory.
func (c *Client) End(ctx context.Context, id string) error {
	_, err := c.ask(ctx, request{Op: opEnd, ID: id})
	return err
}

// List returns the sandboxes with a directory, sorted.
func (c *Client) List(ctx context.Context) ([]string, error) {
	a, err := c.ask(ctx, request{Op: opList})
	return a.Sandboxes, err
}

// Probe returns once the relay answers on a new connection. limit starts when the connection is open. Errors: ErrSilent
// if the relay does not answer; any other error says nothing about the relay.
func (c *Client) Probe(ctx context.Context, limit time.Duration) error {
	fresh := NewClient(c.direct, c.command) // a dead old connection is not the relay's fault
	conn, err := fresh.open(ctx)
	defer fresh.Close()                 //nolint:errcheck // it is no longer used
	if errors.Is(err, syscall.EAGAIN) { // the accept queue is full
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

// Dial connects to a sandbox. It waits at most 30 s for the sandbox to dial the relay. The connection has a method
// CloseWrite. Errors: ErrUnknown, ErrAbsent and ErrFull; any other error means that it did not reach the relay.
func (c *Client) Dial(ctx context.Context, id string) (net.Conn, error) {
	r := request{Op: opAttach, ID: id, Wait: maxWait}
	if end, ok := ctx.Deadline(); ok {
		left := max(time.Until(end), 0)
		r.Wait = min(left-left/answerPart, maxWait) // so that a working relay's answer arrives in time
	}
	conn, a, err := c.call(ctx, r)
	if err != nil || !a.Lent {
		return conn, err
	}
	return borrow(ctx, conn)
}

// answerPart sets the part of a wait that is reserved for the relay's answer: one in answerPart.
const answerPart = 8

// ask sends a request and returns its answer, after which nothing follows.
func (c *Client) ask(ctx context.Context, r request) (answer, error) {
	conn, a, err := c.call(ctx, r)
	if err == nil {
		_ = conn.Close() // everything was read
	}
	return a, err
}

// call sends a request. It returns the request's connection unless the relay refuses.
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
		_ = conn.Close() // return the first error
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
		return nil, errors.New("this program has no route to it")
	}
	conn, err := c.mux.open(ctx)
	if err != nil {
		return nil, errors.Join(directErr, err)
	}
	return conn, nil
}

// exchange sends a request and reads exactly its answer.
func exchange(ctx context.Context, conn net.Conn, r request) (a answer, err error) {
	err = within(ctx, conn, func() error {
		if err := writeMessage(conn, r); err != nil {
			return err
		}
		return readMessage(conn, maxAnswer, &a)
	})
	return a, err
}

// within runs do, and breaks the connection off when ctx ends.
func within(ctx context.Context, conn net.Conn, do func() error) error {
	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(cut)
		_ = conn.SetDeadline(time.Unix(1, 0)) // a closed connection needs no deadline
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
