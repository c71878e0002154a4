//go:build linux

package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// workerdHost is what workerd calls the machine that it runs on.
const workerdHost = "host.docker.internal"

// maxHead bounds the bytes that are read of a connection before its host is known; headLimit bounds the time for it.
const (
	maxHead   = 64 << 10
	headLimit = 10 * time.Second
)

// egress has workerd's settings for outbound connections. Absent settings do not change.
type egress struct {
	Port int64 `json:"port"`
	DNS  *struct {
		AllowHostnames []string `json:"allowHostnames"`
	} `json:"dns"`
}

// egressPath accepts the outbound connections of the container's programs.
type egressPath struct {
	authority *authority
	port      atomic.Int64 // of workerd

	mu      sync.Mutex // guards listens
	listens bool
}

// set applies workerd's settings. Interception cannot be switched off again.
func (o *egressPath) set(e egress) error {
	o.port.Store(e.Port)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.listens || e.DNS == nil || len(e.DNS.AllowHostnames) == 0 {
		return nil
	}
	if err := o.listen(); err != nil {
		return fmt.Errorf("intercept what goes out: %w", err)
	}
	o.listens = true
	return nil
}

func (o *egressPath) listen() error {
	gateway, err := net.ResolveIPAddr("ip4", workerdHost)
	if err != nil {
		return err
	}
	if err := answerNames(); err != nil {
		return err
	}
	for port, take := range map[int]func(net.Conn) error{80: o.takeHTTP, 443: o.takeTLS} {
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{Port: port})
		if err != nil {
			return err
		}
		go serve(l, take)
	}
	return routeToSelf(gateway.IP)
}

// serve accepts connections until the container ends.
func serve(l *net.TCPListener, take func(net.Conn) error) {
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			log.Print(err)
			return
		}
		go func() {
			defer c.Close()
			if err := take(c); err != nil && !errors.Is(err, io.EOF) {
				log.Printf("from %s to %s: %v", c.RemoteAddr(), c.LocalAddr(), err)
			}
		}()
	}
}

// takeHTTP passes on a connection by the host of its first request.
func (o *egressPath) takeHTTP(c net.Conn) error {
	if err := c.SetReadDeadline(time.Now().Add(headLimit)); err != nil {
		return err
	}
	var head bytes.Buffer
	reader := bufio.NewReader(io.TeeReader(io.LimitReader(c, maxHead), &head))
	request, err := http.ReadRequest(reader)
	if err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	tunnel, _, err := o.tunnel(c, "X-Hostname", strings.Split(request.Host, ":")[0])
	if err != nil {
		return err
	}
	return join(&replayed{c, io.MultiReader(&head, c)}, tunnel)
}

// takeTLS passes on a connection by its server name. It decrypts the connection if workerd intercepts it.
func (o *egressPath) takeTLS(c net.Conn) error {
	if err := c.SetReadDeadline(time.Now().Add(headLimit)); err != nil {
		return err
	}
	name, raw, err := readHello(c)
	if err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	tunnel, opened, err := o.tunnel(c, "X-Tls-Sni", name)
	if err != nil {
		return err
	}
	whole := &replayed{c, io.MultiReader(bytes.NewReader(raw), c)}
	if !opened {
		return join(whole, tunnel)
	}
	server := tls.Server(whole, &tls.Config{NextProtos: []string{"http/1.1"}, GetCertificate: o.authority.certificate})
	defer server.Close()
	if err := server.Handshake(); err != nil {
		return errors.Join(err, tunnel.Close())
	}
	return join(server, tunnel)
}

// tunnel connects to workerd for a program's connection, and reports whether workerd reads the content.
func (o *egressPath) tunnel(c net.Conn, header, name string) (tunnel net.Conn, reads bool, err error) {
	target := c.LocalAddr().String()
	if local, ok := c.LocalAddr().(*net.TCPAddr); ok && local.IP.IsLoopback() {
		return nil, false, errors.New("the container's own addresses are not intercepted")
	}
	conn, err := net.DialTimeout("tcp4", fmt.Sprintf("%s:%d", workerdHost, o.port.Load()), dialLimit)
	if err != nil {
		return nil, false, err
	}
	request := fmt.Sprintf("CONNECT %s HTTP/1.1\r\nHost: %s\r\n", target, target)
	if name != "" {
		request += fmt.Sprintf("%s: %s\r\n", header, name)
	}
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		return nil, false, errors.Join(err, conn.Close())
	}
	reader := bufio.NewReader(conn)
	//nolint:bodyclose // what follows is the tunnel's, which its connection closes
	answer, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, false, errors.Join(err, conn.Close())
	}
	switch answer.StatusCode {
	case http.StatusOK, http.StatusAccepted: // with 202 the bytes pass as they are
		return &replayed{conn, reader}, answer.StatusCode == http.StatusOK, nil
	default:
		return nil, false, errors.Join(fmt.Errorf("workerd answers %s", answer.Status), conn.Close())
	}
}

// replayed is a connection that first returns the bytes that were read before.
type replayed struct {
	net.Conn
	from io.Reader
}

func (r *replayed) Read(p []byte) (int, error) { return r.from.Read(p) }

// CloseWrite passes the end of a stream on.
func (r *replayed) CloseWrite() error {
	if half, ok := r.Conn.(*net.TCPConn); ok {
		return half.CloseWrite()
	}
	return r.Conn.Close()
}

type halfCloser interface{ CloseWrite() error }

// join copies in both directions until both have ended or one has failed.
func join(a, b net.Conn) error {
	defer a.Close()
	defer b.Close()
	ends := make(chan error, 2)
	one := func(to net.Conn, from io.Reader) {
		_, err := io.Copy(to, from)
		if half, ok := to.(halfCloser); ok && err == nil {
			err = half.CloseWrite()
		}
		ends <- err
	}
	go one(a, b)
	go one(b, a)
	for range 2 {
		if err := <-ends; err != nil {
			return nil // either side has gone
		}
	}
	return nil
}
