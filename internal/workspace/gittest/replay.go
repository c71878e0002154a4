package gittest

import (
	"bytes"
	"crypto/ed25519"
	"encoding/pem"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// NewReplay starts an ssh server that runs the first requested program. It answers all later requests immediately with
// that program's output, so they end before they have read anything.
func NewReplay(t testing.TB) *SSH {
	t.Helper()
	_, hostKey, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(hostKey)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.MarshalPrivateKey(hostKey, "") // any key may log in, so one key serves for both
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config := &ssh.ServerConfig{NoClientAuth: true}
	config.AddHostKey(signer)
	r := &replay{t: t, config: config, open: map[net.Conn]bool{}}
	r.tasks.Go(func() { r.accept(listener) })
	t.Cleanup(func() {
		_ = listener.Close()
		r.closeAll()
		r.tasks.Wait()
	})
	host := listener.Addr().String()
	return &SSH{Host: host, User: "git", Key: string(pem.EncodeToMemory(key)),
		KnownHosts: knownhosts.Line([]string{host}, signer.PublicKey())}
}

// replay is the server of NewReplay.
type replay struct {
	t      testing.TB
	config *ssh.ServerConfig
	tasks  sync.WaitGroup

	mu     sync.Mutex
	open   map[net.Conn]bool
	output []byte
}

func (r *replay) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // it is closed at the end of the test
		}
		r.mu.Lock()
		r.open[conn] = true
		r.mu.Unlock()
		r.tasks.Go(func() { r.serve(conn) })
	}
}

func (r *replay) closeAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for conn := range r.open {
		_ = conn.Close()
	}
}

// serve runs the programs of one connection.
func (r *replay) serve(conn net.Conn) {
	_, channels, requests, err := ssh.NewServerConn(conn, r.config)
	if err != nil {
		return // the client has given up
	}
	go ssh.DiscardRequests(requests) // it ends with the connection
	for opened := range channels {
		channel, asked, err := opened.Accept()
		if err != nil {
			return
		}
		for request := range asked {
			if request.Type != "exec" {
				_ = request.Reply(false, nil)
				continue
			}
			_ = request.Reply(true, nil)
			r.exec(channel, string(request.Payload[4:]))
			_ = channel.Close()
		}
	}
}

// exec runs a program, or replays its output.
func (r *replay) exec(channel ssh.Channel, command string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.output == nil {
		var out bytes.Buffer
		program := exec.CommandContext(r.t.Context(), "sh", "-c", command)
		program.Stdin, program.Stdout = channel, io.MultiWriter(&out, channel)
		if err := program.Run(); err != nil {
			r.t.Errorf("%s: %v", strings.Fields(command)[0], err)
		}
		r.output = out.Bytes()
		return
	}
	_, _ = channel.Write(r.output) // a client that has gone needs none
}
