//go:build linux

// Package egress forwards connections in a sandbox to the gateway.
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
	// maxForwards limits concurrent connections. The gateway has the same limit per sandbox.
	maxForwards = 256
	// askTime limits how long the gateway takes to connect to a host.
	askTime = 30 * time.Second
	// maxAnswer limits the header of the gateway's answer, in bytes.
	maxAnswer = 4 << 10
)

// forwarder forwards connections in the sandbox to the gateway. Only the gateway decides what is allowed: sandbox code
// can also connect to the socket itself.
type forwarder struct {
	socket string
	slots  chan struct{}
}

// Forward starts to forward according to egress, in JSON. It ends with the process. On older kernels this user may not
// listen on low ports. Then hosts on such ports are reachable only through the proxy.
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

// listen forwards connections to an address: unchanged, or to a target that it requests from the gateway.
func (f *forwarder) listen(address, target string) error {
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(addr))
	if err != nil {
		return err
	}
	go f.serve(l, target) // it ends with the process
	return nil
}

func (f *forwarder) serve(l *net.TCPListener, target string) {
	for {
		conn, err := l.AcceptTCP()
		if err != nil { // out of descriptors or memory, which the sandbox may release
			time.Sleep(10 * time.Millisecond)
			continue
		}
		f.slots <- struct{}{} // further connections wait in the kernel
		go func() {
			defer func() { <-f.slots }()
			f.forward(conn, target)
		}()
	}
}

// forward serves one connection until both sides have ended. It resets a client whose host cannot be reached,
// so that it fails at once.
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

// call connects to the gateway and requests a target, unless the client itself talks to the gateway.
func (f *forwarder) call(target string) (*net.UnixConn, error) {
	// A Unix socket accepts a connection at once or not at all.
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
	// The host sends nothing before the client does, so this does not read beyond the answer.
	in := bufio.NewReader(io.LimitReader(gateway, maxAnswer))
	status, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.HasPrefix(status, "HTTP/1.1 200 ") {
		return fmt.Errorf("the gateway answered %q", strings.TrimSpace(status))
	}
	for line := status; line != "\r\n"; {
		if line, err = in.ReadString('\n'); err != nil {
			return err
		}
	}
	if in.Buffered() > 0 {
		return errors.New("the gateway sent unexpected data")
	}
	return gateway.SetDeadline(time.Time{})
}

// move copies one direction to its end. If that breaks, both directions end.
func move(to, from interface {
	io.ReadWriteCloser
	CloseWrite() error
}) {
	_, err := io.Copy(to, from)
	if err == nil {
		err = to.CloseWrite()
	}
	if err != nil {
		_, _ = to.Close(), from.Close() // there is no place to report it
	}
}
