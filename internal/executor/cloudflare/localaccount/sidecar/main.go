// Command sidecar stands in for cloudflare/proxy-everything, the image that local workerd puts beside each
// container to hold its network. It lets nothing out: what it answers is what workerd waits for.
package main

import (
	"flag"
	"log"
	"net/http"
	"time"
)

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
	switch r.Method + " " + r.URL.Path {
	case "PUT /egress", "GET /ca":
		w.WriteHeader(http.StatusOK)
	default:
		http.NotFound(w, r)
	}
}
