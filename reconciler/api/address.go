package api

import (
	"net"
	"net/http"
	"slices"
	"strings"
)

// addressOf returns the client address of a request without the port: the first address from the right in
// X-Forwarded-For that is not a trusted proxy. It returns "" for a unix socket.
func (s *server) addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil { // a unix socket has no address
		host = ""
	}
	if ip := net.ParseIP(host); ip != nil {
		host = ip.String()
	}
	if !s.isProxy(host) {
		return host
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		ip := net.ParseIP(strings.TrimSpace(hop))
		if ip == nil {
			break // the rest is not trustworthy
		}
		if host = ip.String(); !s.isProxy(host) { // normalized, so that an address has one rate limit
			break
		}
	}
	return host
}

// isProxy reports whether an address belongs to a trusted proxy. A client of a unix socket counts as one if there are
// trusted proxies: the socket's mode decides who may open it.
func (s *server) isProxy(address string) bool {
	if address == "" {
		return len(s.proxies) > 0
	}
	ip := net.ParseIP(address)
	return ip != nil && slices.ContainsFunc(s.proxies, func(n net.IPNet) bool { return n.Contains(ip) })
}
