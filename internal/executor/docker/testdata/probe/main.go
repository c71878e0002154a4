//go:build linux

// Command probe tries one way out of its sandbox, and prints "reached …" or "blocked: …".
//
//	probe get <url>                            as programs do that know the proxy variables
//	probe direct <url>                         as programs do that know no proxy
//	probe connect <host:port> <sni>            a tunnel, and a TLS name that may be another
//	probe relay <host:port> <host>             a tunnel, and a plain request that may be for another
//	probe raw <text>                           any bytes to the proxy
//	probe tcp|udp <address>
//	probe socket <path>                        a unix socket, as a proxy
//	probe pull <url>                           says how long its content took, and how much it was
//	probe round <url>                          says the median of 200 requests, one after the other
//	probe memory                               says what process 1 has in memory, in KiB
//	probe packet                               raw and packet sockets
//	probe ping <IPv4 address>                  a ping, and its answer
//	probe resolve <server> <name>
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	proxy   = "127.0.0.1:3128"
	timeout = 5 * time.Second
)

func main() {
	said, err := try(os.Args[1], os.Args[2:])
	if err != nil {
		fmt.Println("blocked:", err)
		return
	}
	fmt.Println(said)
}

func try(kind string, args []string) (string, error) {
	switch kind {
	case "get":
		return get(args[0], http.ProxyFromEnvironment)
	case "direct":
		return get(args[0], nil)
	case "connect":
		return connect(args[0], args[1])
	case "relay":
		return relay(args[0], args[1])
	case "raw":
		text, err := strconv.Unquote(`"` + args[0] + `"`)
		if err != nil {
			return "", err
		}
		return talk("tcp", proxy, text)
	case "tcp", "udp":
		return talk(kind, args[0], "GET / HTTP/1.0\r\n\r\n")
	case "socket":
		return talk("unix", args[0], "GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n")
	case "pull":
		return pull(args[0])
	case "round":
		return round(args[0])
	case "memory":
		return memory()
	case "ping":
		return ping(args[0])
	case "packet":
		return packet()
	case "resolve":
		r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, args[0])
		}}
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		addrs, err := r.LookupHost(ctx, args[1]+".")
		return "reached " + strings.Join(addrs, " "), err
	default:
		return "", errors.New("no such probe")
	}
}

func get(address string, via func(*http.Request) (*url.URL, error)) (string, error) {
	client := &http.Client{Timeout: timeout, Transport: &http.Transport{
		Proxy: via, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	res, err := client.Get(address)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 4096))
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("status %d: %s", res.StatusCode, b)
	}
	return string(b), err
}

func pull(address string) (string, error) {
	client := &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	res, err := client.Get(address)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	began := time.Now()
	n, err := io.Copy(io.Discard, res.Body)
	return fmt.Sprintf("%d %d", time.Since(began), n), err
}

// round sends requests repeatedly on one connection, which the first request opens.
func round(address string) (string, error) {
	client := &http.Client{Timeout: timeout, Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	var took []time.Duration
	for range 201 {
		began := time.Now()
		res, err := client.Get(address)
		if err != nil {
			return "", err
		}
		_, err = io.Copy(io.Discard, res.Body)
		if err = errors.Join(err, res.Body.Close()); err != nil {
			return "", err
		}
		took = append(took, time.Since(began))
	}
	took = took[1:]
	slices.Sort(took)
	return fmt.Sprintf("%d %d", took[len(took)/2], len(took)), nil
}

func memory() (string, error) {
	b, err := os.ReadFile("/proc/1/status")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if kib, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			return strings.TrimSuffix(strings.TrimSpace(kib), " kB"), nil
		}
	}
	return "", errors.New("the kernel does not say")
}

// tunnel opens a tunnel through the proxy.
func tunnel(target string) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", proxy, timeout)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(timeout))
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	res, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d: %s", res.StatusCode, res.Header.Get("X-Sandbox-Gateway"))
	}
	return conn, nil
}

func connect(target, sni string) (string, error) {
	conn, err := tunnel(target)
	if err != nil {
		return "", err
	}
	return request(tls.Client(conn, &tls.Config{ServerName: sni, InsecureSkipVerify: true}), sni)
}

func relay(target, host string) (string, error) {
	conn, err := tunnel(target)
	if err != nil {
		return "", err
	}
	return request(conn, host)
}

func request(conn net.Conn, host string) (string, error) {
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host); err != nil {
		return "", err
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("status %d: %s", res.StatusCode, res.Header.Get("X-Sandbox-Gateway"))
	}
	return string(b), err
}

func talk(network, address, text string) (string, error) {
	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return "", err
	}
	_ = conn.SetDeadline(time.Now().Add(timeout))
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	b := make([]byte, 4096)
	n, err := conn.Read(b)
	if err != nil {
		return "", err
	}
	answer := string(b[:n])
	if strings.HasPrefix(answer, "HTTP/1.") && !strings.HasPrefix(answer[9:], "200") {
		return "", fmt.Errorf("status %s", answer[9:12])
	}
	return "reached " + answer, nil
}

// packet tries every kind of socket that bypasses TCP and UDP.
func packet() (string, error) {
	var errs []error
	for name, s := range map[string][3]int{
		"raw ICMP": {syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_ICMP}, "raw IP": {syscall.AF_INET, syscall.SOCK_RAW, syscall.IPPROTO_RAW},
		"packet": {syscall.AF_PACKET, syscall.SOCK_RAW, 0x0300}, "SCTP to nowhere": {syscall.AF_INET, syscall.SOCK_STREAM, 132},
	} {
		fd, err := syscall.Socket(s[0], s[1], s[2])
		if err == nil {
			err = syscall.Connect(fd, &syscall.SockaddrInet4{Port: 443, Addr: [4]byte{1, 1, 1, 1}})
		}
		if err == nil {
			return "reached by " + name, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", name, err))
	}
	return "", errors.Join(errs...)
}

// ping pings without a raw socket, which every user may do if the kernel's setting allows it.
func ping(address string) (string, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, syscall.IPPROTO_ICMP)
	if err != nil {
		return "", fmt.Errorf("open a socket: %w", err)
	}
	defer syscall.Close(fd)
	if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &syscall.Timeval{Sec: int64(timeout.Seconds())}); err != nil {
		return "", err
	}
	const echoRequest = 8
	to := syscall.SockaddrInet4{Addr: [4]byte(net.ParseIP(address).To4())}
	if err := syscall.Sendto(fd, []byte{echoRequest, 0, 0, 0, 0, 0, 0, 1}, 0, &to); err != nil {
		return "", fmt.Errorf("send: %w", err)
	}
	if _, _, err := syscall.Recvfrom(fd, make([]byte, 64), 0); err != nil {
		return "", fmt.Errorf("receive: %w", err)
	}
	return "reached " + address, nil
}
