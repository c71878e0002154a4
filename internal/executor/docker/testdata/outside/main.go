// Command outside is the Internet of a test: a web server in TLS on 443 and 8443, one in plain HTTP
// on 80 and 8080, which say what they were asked for, and a name server that knows named.test, as itself.
package main

import (
	"bytes"
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
	"strings"
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
		if reply := answer(b[:n], own()); reply != nil {
			_, _ = udp.WriteTo(reply, from)
		}
	}
}

// answer replies to a question of the DNS; nil to what is none.
func answer(query []byte, address net.IP) []byte {
	const header, name = 12, "\x05named\x04test\x00"
	end := bytes.IndexByte(query[min(header, len(query)):], 0) + header + 5 // the name, its type and its class
	if len(query) < header || end < header+5 || end > len(query) {
		return nil
	}
	question := query[header:end]
	known := strings.EqualFold(string(question[:len(question)-4]), name)
	isA := bytes.Equal(question[len(question)-4:], []byte{0, 1, 0, 1})
	reply := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question...)
	switch {
	case !known:
		reply[3] |= 3 // no such name
	case isA:
		reply[7] = 1
		reply = append(reply, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 60, 0, net.IPv4len)
		reply = append(reply, address.To4()...)
	}
	return reply
}

// own is the address of this container.
func own() net.IP {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		log.Fatal(err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
			return n.IP
		}
	}
	log.Fatal("this container has no address")
	return nil
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
