//go:build linux

// Command sidecar stands in for cloudflare/proxy-everything, the image that local workerd puts beside each container to
// hold its network. It accepts workerd's connections to ports of the container, by HTTP CONNECT. If workerd intercepts
// outbound traffic, it routes every address to itself, decrypts TLS with its own authority, and passes HTTP and HTTPS
// on to workerd, which asks the Worker. Then nothing else gets out, and no name is looked up.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// dialLimit bounds a connection to a port beside this program.
const dialLimit = 5 * time.Second

func main() {
	ingress := flag.String("http-ingress-address", "0.0.0.0:39001", "where workerd tells what may go out")
	port := flag.Int("http-egress-port", 0, "the port of workerd that takes what goes out")
	flag.String("docker-gateway-cidr", "", "not used")
	for _, name := range []string{"dns-enabled", "tls-intercept", "disable-ipv6"} {
		flag.Bool(name, false, "not used")
	}
	flag.Parse()
	authority, err := newAuthority()
	if err != nil {
		log.Fatal(err)
	}
	s := &sidecar{way: &egressPath{authority: authority}}
	s.way.port.Store(int64(*port))
	server := &http.Server{Addr: *ingress, ReadHeaderTimeout: time.Minute, Handler: s}
	log.Fatal(server.ListenAndServe())
}

// sidecar answers workerd.
type sidecar struct{ way *egressPath }

func (s *sidecar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect {
		connect(w, r)
		return
	}
	switch r.Method + " " + r.URL.Path {
	case "PUT /egress":
		var wanted egress
		if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := s.way.set(wanted); err != nil {
			log.Print(err)
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	case "GET /ca":
		_, _ = w.Write(s.way.authority.pem) // workerd may have gone
	default:
		http.NotFound(w, r)
	}
}

// connect joins a connection to the port that the header names. Workerd expects a refused port to be answered with 400.
func connect(w http.ResponseWriter, r *http.Request) {
	_, port, err := net.SplitHostPort(r.Header.Get("X-Dst-Addr"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	dialer := net.Dialer{Timeout: dialLimit}
	inside, err := dialer.DialContext(r.Context(), "tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	defer inside.Close()
	w.WriteHeader(http.StatusOK)
	outside, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		log.Print(err)
		return
	}
	defer outside.Close()
	if err := buffered.Flush(); err != nil {
		return // workerd has gone
	}
	var both sync.WaitGroup
	both.Go(func() { pass(inside, buffered) })
	pass(outside, inside)
	both.Wait()
}

// pass copies a stream to its end, and passes the end on.
func pass(to net.Conn, from io.Reader) {
	_, err := io.Copy(to, from)
	half, ok := to.(*net.TCPConn)
	if err == nil && ok {
		err = half.CloseWrite()
	}
	if err != nil || !ok {
		_ = errors.Join(err, to.Close()) // either side has gone
	}
}
