//go:build linux

package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

const (
	// portPause is the pause between two attempts to connect, portLimit limits each.
	portPause = 50 * time.Millisecond
	portLimit = time.Second
)

// dialPort connects to a port of the sandbox once a program listens there.
func dialPort(ctx context.Context, port int) (*net.TCPConn, error) {
	dialer := net.Dialer{Timeout: portLimit}
	for {
		conn, err := dialer.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return conn.(*net.TCPConn), nil //nolint:forcetypeassert // the type for tcp4
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for port %d: %w", port, err)
		case <-time.After(portPause):
		}
	}
}

// awaitPort returns once a program listens on a port.
func awaitPort(ctx context.Context, port int) wire.Result {
	conn, err := dialPort(ctx, port)
	if err != nil {
		return failure(err)
	}
	_ = conn.Close() // the connection was only a test
	return wire.Result{}
}

// connect copies between a stream and a program that listens on a port, until the program ends its side.
func connect(ctx context.Context, port int, in io.Reader, out *wire.Writer) wire.Result {
	conn, err := dialPort(ctx, port)
	if err != nil {
		return failure(err)
	}
	defer conn.Close()                                      //nolint:errcheck // both directions have ended
	defer context.AfterFunc(ctx, func() { conn.Close() })() //nolint:errcheck // this ends a Read and a Write
	if err := out.Begins(0); err != nil {
		return failure(err)
	}
	go func() { // ends with the stream, which the channel closes after this returns
		if _, err := io.Copy(conn, in); err != nil || conn.CloseWrite() != nil {
			conn.Close() //nolint:errcheck // the other direction reports the error
		}
	}()
	if _, err := io.Copy(out.Stdout(), conn); err != nil {
		return failure(fmt.Errorf("the connection to port %d broke: %w", port, errors.Join(context.Cause(ctx), err)))
	}
	return wire.Result{}
}
