// Package testaddress chooses addresses for servers of tests.
package testaddress

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Free returns an address of this machine, a host and a port, on which nothing listens. The host is a random one of the
// loopback network: between this call and the server's start, other tests take ports of 127.0.0.1.
func Free() (string, error) {
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	l, err := net.Listen("tcp", host+":0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
