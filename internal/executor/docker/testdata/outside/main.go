// Command outside is the Internet of a test: a web server in TLS on 443 and 8443, one in plain HTTP
// on 80 and 8080, and something that answers on UDP port 53. They say what they were asked for.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"time"
)

func main() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour), DNSNames: []string{"*.test"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		log.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	http.HandleFunc("/", echo)
	for _, port := range []string{"443", "8443", "80", "8080"} {
		l, err := net.Listen("tcp", ":"+port)
		if err != nil {
			log.Fatal(err)
		}
		if port == "443" || port == "8443" {
			l = tls.NewListener(l, config)
		}
		go func() { log.Fatal(http.Serve(l, nil)) }()
	}
	udp, err := net.ListenPacket("udp", ":53")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("ready")
	for b := make([]byte, 512); ; {
		n, from, err := udp.ReadFrom(b)
		if err != nil {
			log.Fatal(err)
		}
		_, _ = udp.WriteTo(b[:n], from)
	}
}

func echo(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/redirect":
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
	case "/zeros":
		_, _ = io.CopyN(w, zeros{}, 256<<20)
	default:
		name := ""
		if r.TLS != nil {
			name = r.TLS.ServerName
		}
		fmt.Fprintf(w, "reached host=%s sni=%s", r.Host, name)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
