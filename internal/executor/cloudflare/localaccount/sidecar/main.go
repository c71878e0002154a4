// Command sidecar stands in for cloudflare/proxy-everything, the image that local workerd puts beside each
// container to hold its network. It lets nothing out: what it answers is what workerd waits for. It lets in what workerd
// connects to a port of the container, by HTTP CONNECT.
package main

import (
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
	for _, name := range []string{"http-egress-port", "docker-gateway-cidr"} {
		flag.String(name, "", "not used")
	}
	for _, name := range []string{"dns-enabled", "tls-intercept", "disable-ipv6"} {
		flag.Bool(name, false, "not used")
	}
	flag.Parse()
	server := &http.Server{Addr: *ingress, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(answer)}
	log.Fatal(server.ListenAndServe())
}

func answer(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect {
		connect(w, r)
		return
	}
	switch r.Method + " " + r.URL.Path {
	case "PUT /egress", "GET /ca":
		w.WriteHeader(http.StatusOK)
	default:
		http.NotFound(w, r)
	}
}

// connect joins a connection to the port that the header names, which workerd expects to be refused with 400.
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

// pass copies to the end of a stream, and passes that on.
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
