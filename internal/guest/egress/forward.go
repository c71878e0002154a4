//go:build linux

// Package egress moves connections from inside of a sandbox to the gateway.
package egress

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

const (
	// maxForwards is how many connections are moved at a time; the gateway takes as many of a sandbox.
	maxForwards = 256
	// askTime bounds what the gateway takes to connect to a host.
	askTime = 30 * time.Second
	// maxAnswer bounds the header of the gateway's answer, in bytes.
	maxAnswer = 4 << 10
)

// forwarder moves connections inside of the sandbox to the gateway. It decides nothing: what may go
// out is the gateway's to say, and code in the sandbox may as well call the socket itself.
type forwarder struct {
	socket string
	slots  chan struct{}
}

// Forward begins to forward as egress, in JSON, says. It ends with the process. A host whose
// port this user may not listen on (before Linux lets everybody) is reached through the proxy alone.
func Forward(egress string) error {
	var e wire.Egress
	if err := json.Unmarshal([]byte(egress), &e); err != nil {
		return err
	}
	f := &forwarder{socket: e.Socket, slots: make(chan struct{}, maxForwards)}
	if err := f.listen(e.Proxy, ""); err != nil {
		return err
	}
	for _, host := range e.Hosts {
		if err := f.listen(host.Address, host.Target); err != nil && !errors.Is(err, syscall.EACCES) {
			return err
		}
	}
	return nil
}

// listen forwards what comes to an address: as it is, or to a target that the gateway is asked for.
func (f *forwarder) listen(address, target string) error {
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(addr))
	if err != nil {
		return err
	}
	go f.serve(l, target) // ends with the process
	return nil
}

func (f *forwarder) serve(l *net.TCPListener, target string) {
	for {
		conn, err := l.AcceptTCP()
		if err != nil { // out of descriptors or memory, which the sandbox may give back
			time.Sleep(10 * time.Millisecond)
			continue
		}
		f.slots <- struct{}{} // what is more waits in the kernel
		go func() {
			defer func() { <-f.slots }()
			f.forward(conn, target)
		}()
	}
}

// forward moves one connection until both sides have ended. A client whose host is not reached is
// reset, so that it fails at once.
func (f *forwarder) forward(client *net.TCPConn, target string) {
	defer client.Close()
	gateway, err := f.call(target)
	if err != nil {
		_ = client.SetLinger(0)
		return
	}
	defer gateway.Close()
	there := make(chan struct{})
	go func() {
		defer close(there)
		move(gateway, client)
	}()
	move(client, gateway)
	<-there
}

// call connects to the gateway and, unless the client itself is to speak to it, asks for a target.
func (f *forwarder) call(target string) (*net.UnixConn, error) {
	// A socket takes a connection at once or not at all.
	gateway, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: f.socket, Net: "unix"})
	if err != nil || target == "" {
		return gateway, err
	}
	if err := ask(gateway, target); err != nil {
		return nil, errors.Join(err, gateway.Close())
	}
	return gateway, nil
}

func ask(gateway net.Conn, target string) error {
	if err := gateway.SetDeadline(time.Now().Add(askTime)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(gateway, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target); err != nil {
		return err
	}
	// The other side says nothing before the client has spoken, so nothing is read too much.
	in := bufio.NewReader(io.LimitReader(gateway, maxAnswer))
	status, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.HasPrefix(status, "HTTP/1.1 200 ") {
		return fmt.Errorf("the gateway says %q", strings.TrimSpace(status))
	}
	for line := status; line != "\r\n"; {
		if line, err = in.ReadString('\n'); err != nil {
			return err
		}
	}
	if in.Buffered() > 0 {
		return errors.New("the gateway says more than it was asked")
	}
	return gateway.SetDeadline(time.Time{})
}

// move copies one direction to its end; when that breaks, both directions end.
func move(to, from interface {
	io.ReadWriteCloser
	CloseWrite() error
}) {
	_, err := io.Copy(to, from)
	if err == nil {
		err = to.CloseWrite()
	}
	if err != nil {
		_, _ = to.Close(), from.Close() // there is no other place to report it
	}
}
