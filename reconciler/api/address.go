package api

import (
	"net"
	"net/http"
	"slices"
	"strings"
)

// addressOf returns where a request comes from, without the port: what the last proxy that is trusted was
// asked from, or "" for a unix socket. What others claim in X-Forwarded-For is not believed.
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
			break // beyond it nothing is known
		}
		if host = ip.String(); !s.isProxy(host) { // written in one way, so that it has one share of what it may ask for
			break
		}
	}
	return host
}

// isProxy reports whether an address is a trusted proxy's. Who reaches a unix socket is one where there are any:
// its mode decides which users may open it.
func (s *server) isProxy(address string) bool {
	if address == "" {
		return len(s.proxies) > 0
	}
	ip := net.ParseIP(address)
	return ip != nil && slices.ContainsFunc(s.proxies, func(n net.IPNet) bool { return n.Contains(ip) })
}
