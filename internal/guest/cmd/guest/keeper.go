//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/proc"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// Process 1 keeps what each command writes and how it ended, so that a reader who comes later misses
// nothing. A helper puts the streams into files without a name, which nobody else can open, and passes
// them to process 1; it reports the end on the same connection. Code of the sandbox runs as the same
// user, so no permission would keep it out. What it cannot have is parent 0: only what the engine
// itself starts in the sandbox has that, and process 1 listens to nobody else.

// keeperAddress is an abstract socket of the sandbox's own network namespace.
const keeperAddress = "@sandbox-commands"

const (
	// keptEnded and keptBytes bound what is kept of commands that have ended: the oldest go first.
	keptEnded = 256
	keptBytes = 64 << 20
	// maxMessage bounds one message of the keeper's connections, in bytes.
	maxMessage = 64 << 10
)

// keeperMessage is what helpers and process 1 tell each other. They are one program, of one release.
type keeperMessage struct {
	// Keep and Follow are a helper's first words, and name a command.
	Keep   string `json:"keep,omitempty"`
	Follow string `json:"follow,omitempty"`
	// Ring says that the first stream is a ring, and the only one that is written.
	Ring bool `json:"ring,omitempty"`
	// Disk asks whether process 1 has ended programs for what they kept on disk, and DiskEnded says when it last did,
	// as time since boot; 0 is never.
	Disk      bool  `json:"disk,omitempty"`
	DiskEnded int64 `json:"disk_ended,omitempty"`
	// Problem is why process 1 refuses, "" when it does not.
	Problem string `json:"problem,omitempty"`
	// Result is how the command ended.
	Result *wire.Result `json:"result,omitempty"`
}

// keptCommand is one command that process 1 knows.
type keptCommand struct {
	id      string
	streams []*os.File // stdout and stderr
	ring    bool       // stdout is a ring
	ended   chan struct{}
	result  wire.Result // once ended
}

// bytes returns how much is kept of what the command wrote.
func (c *keptCommand) bytes() (sum int64) {
	for _, f := range c.streams {
		if info, err := f.Stat(); err == nil {
			sum += info.Size()
		}
	}
	return sum
}

type register struct {
	mu    sync.Mutex // guards what follows
	kept  map[string]*keptCommand
	ended []*keptCommand // the oldest first
}

// startKeeping begins to keep commands. It ends with the process.
func startKeeping() error {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: keeperAddress, Net: "unixpacket"})
	if err != nil {
		return err
	}
	k := &register{kept: make(map[string]*keptCommand)}
	go func() { // ends with the process
		for {
			conn, err := l.AcceptUnix()
			if err != nil {
				fatal("keep commands: %v", err)
			}
			if !fromEngine(conn) {
				_ = conn.Close() // there is nothing in it
				continue
			}
			go func() { // ends with the connection
				defer conn.Close()
				k.serve(conn)
			}()
		}
	}()
	return nil
}

// fromEngine reports whether the engine started who connects, and not code of the sandbox.
func fromEngine(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	var peer *unix.Ucred
	if ctlErr := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); ctlErr != nil || err != nil {
		return false
	}
	parent, alive := proc.ParentOf(int(peer.Pid))
	return alive && parent == 0 && peer.Pid != 1
}

func (k *register) serve(conn *net.UnixConn) {
	m, files, err := receive(conn)
	switch {
	case err != nil:
	case m.Keep != "" && len(files) == 2:
		k.keep(conn, m, files)
		return
	case m.Follow != "":
		k.follow(conn, m.Follow)
	case m.Disk:
		_ = send(conn, keeperMessage{DiskEnded: diskEnded.Load()}) // as below
	}
	closeAll(files)
}

// keep takes a command over, and waits for its end.
func (k *register) keep(conn *net.UnixConn, what keeperMessage, streams []*os.File) {
	c := &keptCommand{id: what.Keep, ring: what.Ring, streams: streams, ended: make(chan struct{})}
	if !k.add(c) {
		_ = send(conn, keeperMessage{Problem: wire.ProblemConflict}) // who does not hear it has gone
		closeAll(streams)
		return
	}
	c.result = wire.Result{Problem: wire.ProblemFailed, Message: "the command was ended before it could report how"}
	if send(conn, keeperMessage{}) == nil {
		if m, _, err := receive(conn); err == nil && m.Result != nil {
			c.result = *m.Result
		}
	}
	k.end(c)
}

// add takes a new command, and reports whether it is new.
func (k *register) add(c *keptCommand) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kept[c.id] != nil {
		return false
	}
	k.kept[c.id] = c
	return true
}

// end notes that a command has ended, and forgets the oldest ones that are too many.
func (k *register) end(c *keptCommand) {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(c.ended)
	k.ended = append(k.ended, c)
	var sum int64
	for _, c := range k.ended {
		sum += c.bytes()
	}
	for len(k.ended) > 1 && (len(k.ended) > keptEnded || sum > keptBytes) {
		oldest := k.ended[0]
		sum -= oldest.bytes()
		k.ended = slices.Delete(k.ended, 0, 1)
		delete(k.kept, oldest.id)
		closeAll(oldest.streams)
	}
}

// follow gives a reader the streams of a command, and its result once it has ended.
func (k *register) follow(conn *net.UnixConn, id string) {
	c, err := k.lend(conn, id)
	if err != nil || c == nil {
		return
	}
	gone := make(chan struct{})
	go func() { // ends with the connection, which serve closes
		defer close(gone)
		_, _, _ = receive(conn) // a reader says no more
	}()
	select {
	case <-c.ended:
		_ = send(conn, keeperMessage{Result: &c.result}) // as above
	case <-gone:
	}
}

// lend passes the streams of a command on, which must not be forgotten meanwhile.
func (k *register) lend(conn *net.UnixConn, id string) (*keptCommand, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.kept[id]
	if c == nil {
		return nil, send(conn, keeperMessage{Problem: wire.ProblemNotFound})
	}
	return c, send(conn, keeperMessage{Ring: c.ring}, c.streams...)
}

// send sends a message, with files. The peer gets descriptors of its own.
func send(conn *net.UnixConn, m keeperMessage, files ...*os.File) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	_, _, err = conn.WriteMsgUnix(b, rights, nil)
	return err
}

// receive receives a message, with the files that came with it.
func receive(conn *net.UnixConn) (m keeperMessage, files []*os.File, err error) {
	b, rights := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(2*4))
	n, nr, _, _, err := conn.ReadMsgUnix(b, rights)
	if err != nil {
		return m, nil, err
	}
	if n == 0 {
		return m, nil, io.EOF
	}
	if files, err = filesOf(rights[:nr]); err == nil {
		err = json.Unmarshal(b[:n], &m)
	}
	if err != nil {
		closeAll(files)
		return m, nil, err
	}
	return m, files, nil
}

func filesOf(rights []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	for _, message := range messages {
		fds, err := unix.ParseUnixRights(&message)
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "stream"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // it has no name: what was in it goes
	}
}

// askKeeper connects a helper to process 1, and returns its answer with the files that it lends.
func askKeeper(m keeperMessage, files ...*os.File) (conn *net.UnixConn, answer keeperMessage, lent []*os.File, err error) {
	conn, err = net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: keeperAddress, Net: "unixpacket"})
	if err != nil {
		return nil, answer, nil, err
	}
	if err = send(conn, m, files...); err == nil {
		answer, lent, err = receive(conn)
	}
	switch {
	case err != nil:
	case answer.Problem == wire.ProblemConflict:
		err = errTaken
	case answer.Problem != "":
		err = errUnknown
	default:
		return conn, answer, lent, nil
	}
	closeAll(lent)
	return nil, answer, nil, errors.Join(err, conn.Close())
}

var (
	errTaken   = errors.New("a command of that id was run in this sandbox before")
	errUnknown = errors.New("the sandbox knows no command of that id (any more): it was stopped since, or has run many others")
)
