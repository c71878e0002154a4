package relay

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// lend sends a client the descriptor of a sandbox's connection, so that no byte passes through the relay.
func lend(client, carrier *net.UnixConn) error {
	raw, err := carrier.SyscallConn()
	if err != nil {
		return err
	}
	var sendErr error
	err = raw.Control(func(fd uintptr) {
		_, _, sendErr = client.WriteMsgUnix([]byte{0}, unix.UnixRights(int(fd)), nil)
	})
	return errors.Join(err, sendErr)
}
