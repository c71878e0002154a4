package relay

import (
	"context"
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// borrows means that this system can pass descriptors.
const borrows = true

// borrowed is a sandbox's connection that the relay lends.
type borrowed struct {
	*net.UnixConn
	request net.Conn // its end tells the relay that the connection is no longer used
}

// Close implements net.Conn.
func (b borrowed) Close() error { return errors.Join(b.UnixConn.Close(), b.request.Close()) }

// borrow receives the connection that the relay lends after its answer. On failure it closes the request's connection.
func borrow(ctx context.Context, request net.Conn) (_ net.Conn, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, request.Close())
		}
	}()
	from, ok := request.(*net.UnixConn)
	if !ok {
		return nil, errors.New("the relay lent a connection over a connection that cannot carry descriptors")
	}
	var carrier net.Conn
	err = within(ctx, from, func() (err error) {
		carrier, err = receive(from)
		return err
	})
	if err != nil {
		if carrier != nil {
			err = errors.Join(err, carrier.Close())
		}
		return nil, err
	}
	of, ok := carrier.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("the relay lent a descriptor that is not a connection"), carrier.Close())
	}
	return borrowed{of, from}, nil
}

// receive reads one byte and its descriptor.
func receive(from *net.UnixConn) (net.Conn, error) {
	var one [1]byte
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := from.ReadMsgUnix(one[:], control)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil {
		return nil, err
	}
	if len(messages) != 1 {
		return nil, errors.New("the relay sent no connection")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fds[0]), "carrier")
	conn, err := net.FileConn(f)
	return conn, errors.Join(err, f.Close())
}
