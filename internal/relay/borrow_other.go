//go:build !linux

package relay

import (
	"context"
	"errors"
	"net"
)

// borrows is false: the engine's sockets are not files on this machine.
const borrows = false

func borrow(_ context.Context, request net.Conn) (net.Conn, error) {
	return nil, errors.Join(errors.New("the relay lent a connection without a request"), request.Close())
}
