//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"syscall"
)

// routeToSelf makes every address local to this network namespace, so that all connections arrive here. The exception
// is the address of the machine, where workerd runs.
func routeToSelf(machine net.IP) error {
	links, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, link := range links {
		if link.Flags&net.FlagLoopback == 0 {
			if err := narrow(link, machine); err != nil {
				return err
			}
			continue
		}
		// Two halves are more specific than the default route, which stays.
		for _, half := range []net.IP{net.IPv4(0, 0, 0, 0), net.IPv4(128, 0, 0, 0)} {
			if err := route(syscall.RTM_NEWROUTE, syscall.RTN_LOCAL, syscall.RT_SCOPE_HOST, half, 1, link.Index); err != nil {
				return fmt.Errorf("route %s/1 to itself: %w", half, err)
			}
		}
	}
	return nil
}

// narrow reduces the route of a link's network to the machine.
func narrow(link net.Interface, machine net.IP) error {
	addresses, err := link.Addrs()
	if err != nil {
		return err
	}
	for _, a := range addresses {
		network, ok := a.(*net.IPNet)
		if !ok || network.IP.To4() == nil || !network.Contains(machine) {
			continue
		}
		if err := route(syscall.RTM_NEWROUTE, syscall.RTN_UNICAST, syscall.RT_SCOPE_LINK, machine, 32,
			link.Index); err != nil {
			return fmt.Errorf("route %s to %s: %w", machine, link.Name, err)
		}
		bits, _ := network.Mask.Size()
		base := network.IP.Mask(network.Mask)
		if err := route(syscall.RTM_DELROUTE, syscall.RTN_UNICAST, syscall.RT_SCOPE_LINK, base, bits,
			link.Index); err != nil {
			return fmt.Errorf("remove the route to %s/%d: %w", base, bits, err)
		}
	}
	return nil
}

// route changes the main table: rtnetlink(7).
func route(message uint16, kind, scope uint8, to net.IP, bits, link int) error {
	socket, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(socket) }() // nothing is left to send
	var header [syscall.SizeofNlMsghdr]byte
	b := append([]byte(nil), header[:]...) // written below
	origin := uint8(syscall.RTPROT_BOOT)
	if message == syscall.RTM_DELROUTE {
		origin = syscall.RTPROT_UNSPEC // any
	}
	b = append(b, syscall.AF_INET, uint8(bits), 0, 0, syscall.RT_TABLE_MAIN, origin, scope, kind, 0, 0, 0, 0)
	b = append(b, 8, 0, syscall.RTA_DST, 0)
	b = append(b, to.To4()...)
	b = append(b, 8, 0, syscall.RTA_OIF, 0)
	b = binary.NativeEndian.AppendUint32(b, uint32(link))
	binary.NativeEndian.PutUint32(b[0:], uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], message)
	flags := uint16(syscall.NLM_F_REQUEST | syscall.NLM_F_ACK)
	if message == syscall.RTM_NEWROUTE {
		flags |= syscall.NLM_F_CREATE | syscall.NLM_F_REPLACE
	}
	binary.NativeEndian.PutUint16(b[6:], flags)
	if err := syscall.Sendto(socket, b, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return err
	}
	ack := make([]byte, 4096)
	n, _, err := syscall.Recvfrom(socket, ack, 0)
	if err != nil {
		return err
	}
	if n < syscall.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(ack[4:]) != syscall.NLMSG_ERROR {
		return fmt.Errorf("the kernel answers with %d bytes of another kind", n)
	}
	if code := int32(binary.NativeEndian.Uint32(ack[syscall.SizeofNlMsghdr:])); code != 0 {
		return syscall.Errno(-code)
	}
	return nil
}
