// Package port accepts connections of the reconciler on a TCP port that sandbox code can also reach. Section
// 10 of the channel's protocol describes it.
package port

import (
	"context"
	"crypto/subtle"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Key authenticates the connections to one container start.
type Key [32]byte

// Purpose is the purpose of a connection.
type Purpose byte

// The purposes.
const (
	Carrier   Purpose = 1
	Operation Purpose = 2
)

const (
	magic = "SBXPORT\n"
	// preambleLimit is the time from the accept to the last byte of the preamble.
	preambleLimit = 2 * time.Second
	// maxOfSource and maxStrangers limit connections without a complete preamble.
	maxOfSource  = 64
	maxStrangers = 256
	// acceptPause is the pause after a failed accept, for example for lack of descriptors.
	acceptPause = 10 * time.Millisecond
)

// Preamble returns the first bytes of a connection.
func Preamble(p Purpose, key Key) []byte {
	return append(append([]byte(magic), byte(p)), key[:]...)
}

// Serve accepts connections until ctx ends, closes l, and waits for all calls of take. take gets each
// connection with a valid key and must close it. Errors: those of l, unless ctx has ended.
func Serve(ctx context.Context, l net.Listener, key Key,
	take func(ctx context.Context, p Purpose, conn net.Conn)) error {
	d := &desk{strangers: map[net.Conn]stranger{}}
	var serving sync.WaitGroup
	defer serving.Wait()
	defer d.dismiss()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })() // this ends Accept
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close() // nothing was read from it
			}
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			time.Sleep(acceptPause)
			continue
		}
		if !d.admit(conn) {
			continue
		}
		serving.Go(func() {
			p, ok := d.examine(conn, key)
			if !ok {
				_ = conn.Close() // it gets no answer
				return
			}
			take(ctx, p, conn)
		})
	}
}

// desk tracks the connections without a valid key so far.
type desk struct {
	mu        sync.Mutex // guards the fields below
	strangers map[net.Conn]stranger
	count     uint64
	closed    bool
}

type stranger struct {
	source  string
	arrived uint64
}

// admit adds a connection. If there are too many, it closes the oldest of the same source, or of all.
func (d *desk) admit(conn net.Conn) bool {
	source := sourceOf(conn)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		_ = conn.Close() // nothing was read from it
		return false
	}
	d.count++
	d.strangers[conn] = stranger{source, d.count}
	var ofSource int
	var oldest, oldestOfSource net.Conn
	for c, s := range d.strangers {
		if oldest == nil || s.arrived < d.strangers[oldest].arrived {
			oldest = c
		}
		if s.source != source {
			continue
		}
		ofSource++
		if oldestOfSource == nil || s.arrived < d.strangers[oldestOfSource].arrived {
			oldestOfSource = c
		}
	}
	switch {
	case ofSource > maxOfSource:
		d.remove(oldestOfSource)
	case len(d.strangers) > maxStrangers:
		d.remove(oldest)
	}
	return true
}

// remove closes a connection, which ends its reader. The caller must hold mu.
func (d *desk) remove(conn net.Conn) {
	delete(d.strangers, conn)
	_ = conn.Close() // its reader sees it
}

// examine reads a preamble.
func (d *desk) examine(conn net.Conn, key Key) (Purpose, bool) {
	var read [len(magic) + 1 + len(key)]byte
	err := conn.SetReadDeadline(time.Now().Add(preambleLimit))
	if err == nil {
		_, err = io.ReadFull(conn, read[:])
	}
	d.mu.Lock()
	_, still := d.strangers[conn]
	delete(d.strangers, conn)
	d.mu.Unlock()
	p := Purpose(read[len(magic)])
	shown := subtle.ConstantTimeCompare(read[len(magic)+1:], key[:]) == 1
	if err != nil || !still || !shown || string(read[:len(magic)]) != magic || p != Carrier && p != Operation {
		return 0, false
	}
	return p, conn.SetReadDeadline(time.Time{}) == nil
}

// dismiss closes all connections without a valid key.
func (d *desk) dismiss() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for conn := range d.strangers {
		d.remove(conn)
	}
}

// sourceOf returns the source of a connection. All addresses of this machine are one source.
func sourceOf(conn net.Conn) string {
	remote, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	local, ok := conn.LocalAddr().(*net.TCPAddr)
	if remote.IP.IsLoopback() || ok && remote.IP.Equal(local.IP) {
		return "inside"
	}
	return remote.IP.String()
}
