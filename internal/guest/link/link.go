//go:build linux

// Package link is the protocol between process 1 and its broker, over a socketpair. Both are the same program
// of the same release.
package link

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// Kind is the kind of a message.
type Kind string

// The kinds. The broker asks, and the keeper answers with the Seq of the question. The keeper sends State and Disk
// unasked.
const (
	// Start starts a command and attaches to it. Attach attaches to a started command.
	Start  Kind = "start"
	Attach Kind = "attach"
	// Detach, Read and Input get no answer.
	Detach Kind = "detach"
	Read   Kind = "read"
	Input  Kind = "input"
	// Open opens a part of a command's output. The answer has its file.
	Open Kind = "open"
	// End ends a command. The keeper answers after its end.
	End Kind = "end"
	// Assign gives the sandbox to a lease. The keeper answers once the lease is in force.
	Assign Kind = "assign"
	// Freeze stops all programs of the sandbox. Thaw continues them.
	Freeze Kind = "freeze"
	Thaw   Kind = "thaw"
	// Shutdown ends the sandbox.
	Shutdown Kind = "shutdown"
	// Begin, Done and Forget access the journal.
	Begin  Kind = "begin"
	Done   Kind = "done"
	Forget Kind = "forget"
	// The keeper sends Answer, State and Disk. Disk says how much of the disk limit is left.
	Answer Kind = "answer"
	State  Kind = "state"
	Disk   Kind = "disk"
)

// Message is one message.
type Message struct {
	Kind Kind   `json:"kind"`
	Seq  uint64 `json:"seq,omitempty"`
	// ID names a command or an operation. Attachment names a reader; the broker chooses it.
	ID         string `json:"id,omitempty"`
	Attachment uint64 `json:"attachment,omitempty"`
	// Flow: the command waits for this reader if the reader falls far behind.
	Flow bool `json:"flow,omitempty"`
	// Command is the command to start. Its file is the working directory.
	Command *Command `json:"command,omitempty"`
	// Part is what Open opens.
	Part Part `json:"part,omitempty"`
	// Offsets are the reader's positions in stdout and stderr, or the offset of Data in the input.
	Offsets [2]int64 `json:"offsets,omitzero"`
	Data    []byte   `json:"-"` // it follows the JSON
	EOF     bool     `json:"eof,omitempty"`
	// Cut: the caller cannot read the rest of the input.
	Cut bool `json:"cut,omitempty"`
	// Feeds: this reader sends the command's input.
	Feeds bool `json:"feeds,omitempty"`
	// Again: the command may already have been started.
	Again bool `json:"again,omitempty"`
	// All makes Freeze end all programs first.
	All bool `json:"all,omitempty"`
	// Lease is the new lease for Assign.
	Lease *wire.Lease `json:"lease,omitempty"`
	// Op is the operation of Begin and Start. Began is the journal's record for the same id.
	Op    string  `json:"op,omitempty"`
	Began *Record `json:"began,omitempty"`
	// Problem is why the keeper refuses, as in wire.Result.
	Problem string       `json:"problem,omitempty"`
	Text    string       `json:"text,omitempty"`
	Result  *wire.Result `json:"result,omitempty"`
	Status  *Status      `json:"status,omitempty"`
	// Left is what Disk says, in bytes. It is less than 0 if the limit is exceeded.
	Left int64 `json:"left,omitempty"`
	// Log: the command's output is a log, and its latest bytes are kept.
	Log bool `json:"log,omitempty"`
	// Body: the message is in the last file, because it is large.
	Body bool `json:"body,omitempty"`

	Files []*os.File `json:"-"`
}

// Record is the journal's record of an operation.
type Record struct {
	Op     string      `json:"op"`
	Ended  bool        `json:"ended,omitempty"`
	Result wire.Result `json:"result,omitzero"`
}

// Command is a resolved command: the keeper resolves no paths.
type Command struct {
	Path    string        `json:"path"`
	Args    []string      `json:"args"`
	Env     []string      `json:"env"`
	UID     int           `json:"uid"`
	GID     int           `json:"gid"`
	Timeout time.Duration `json:"timeout,omitempty"`
	Stdin   bool          `json:"stdin,omitempty"`
	Shell   bool          `json:"shell,omitempty"`
	Process bool          `json:"process,omitempty"`
	// Verifier is set for a verifier: everything else in the sandbox is frozen while it runs.
	Verifier *Verifier `json:"verifier,omitempty"`
	// Failure is set if no program was found: it is the exit code, and Text is the output.
	Failure int    `json:"failure,omitempty"`
	Text    string `json:"text,omitempty"`
}

// Verifier holds the settings of a verifier.
type Verifier struct {
	// Groups are its supplementary groups.
	Groups []uint32 `json:"groups,omitempty"`
	// Clean are the arguments with which Path removes the verifier's directory.
	Clean []string `json:"clean"`
}

// Head is the size of the beginning of each stream, in bytes. The answer to Start or Attach has the file of both: first
// stdout's, then stderr's.
const Head = 4 << 10

// Part is a part of a command's output that has a file of its own.
type Part int

// Output that is kept beyond Head, and output beyond the kept one. Each of them starts at stdout, followed by stderr.
const (
	Rest   Part = 0
	Window Part = 2
	Parts       = 4
)

// Status is the progress of a command.
type Status struct {
	// Total is the size of the output. Kept is how much of it is kept, from the start.
	Total [2]int64 `json:"total"`
	Kept  [2]int64 `json:"kept"`
	// Taken is how much input was accepted; InputClosed: no more is accepted.
	Taken       int64 `json:"taken,omitempty"`
	InputClosed bool  `json:"input_closed,omitempty"`
	Ended       bool  `json:"ended,omitempty"`
	// Result is set after the end. Raw is the report of its shell, which started with the variables in Began.
	Result *wire.Result `json:"result,omitempty"`
	Raw    []byte       `json:"raw,omitempty"`
	Began  []string     `json:"began,omitempty"`
}

const (
	// maxInline limits a message in a packet, in bytes. A larger one is sent in a file.
	maxInline = 60 << 10
	// maxBody limits any message, maxFiles its files.
	maxBody  = 8 << 20
	maxFiles = 8
)

// Conn is one side of the link.
type Conn struct {
	conn *net.UnixConn
	buf  []byte // buffer for Receive
	mu   sync.Mutex
}

// New uses a socket for a connection.
func New(f *os.File) (*Conn, error) {
	c, err := net.FileConn(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("the link is not a packet socket"), c.Close())
	}
	return &Conn{conn: u, buf: make([]byte, maxInline+1024)}, nil
}

// Pair returns a connection and the file for the other end.
func Pair() (*Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make the broker's socket: %w", err)
	}
	other := os.NewFile(uintptr(fds[1]), "broker")
	c, err := New(os.NewFile(uintptr(fds[0]), "keeper"))
	if err != nil {
		return nil, nil, errors.Join(err, other.Close())
	}
	return c, other, nil
}

// Close ends the link for both ends.
func (c *Conn) Close() error { return c.conn.Close() }

// Send sends a message. The peer gets its own descriptors.
func (c *Conn) Send(m Message) error {
	b, err := encode(m)
	if err != nil {
		return err
	}
	files := m.Files
	if len(b) > maxInline {
		body, err := inFile(b)
		if err != nil {
			return err
		}
		defer body.Close()
		files = append(files[:len(files):len(files)], body)
		if b, err = encode(Message{Body: true}); err != nil {
			return err
		}
	}
	fds := make([]int, len(files))
	for i, f := range files {
		raw, err := f.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { fds[i] = int(fd) })
		}
		if err != nil {
			return err
		}
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _, err = c.conn.WriteMsgUnix(b, rights, nil)
	return err
}

// headSize is the size of the length field of a message's JSON. The data follows the JSON: encoded in it, the data
// would cost most of the time of a command's input.
const headSize = 4

func encode(m Message) ([]byte, error) {
	head, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, headSize+len(head)+len(m.Data))
	b = binary.BigEndian.AppendUint32(b, uint32(len(head))) //nolint:gosec // no message is that large
	return append(append(b, head...), m.Data...), nil
}

// decode returns a message that does not share memory with b.
func decode(b []byte) (m Message, err error) {
	if len(b) < headSize {
		return m, fmt.Errorf("a message of %d bytes is too short", len(b))
	}
	size, rest := binary.BigEndian.Uint32(b), b[headSize:]
	if uint64(size) > uint64(len(rest)) {
		return m, fmt.Errorf("a message of %d bytes cannot have %d bytes of JSON", len(b), size)
	}
	if err := json.Unmarshal(rest[:size], &m); err != nil {
		return m, err
	}
	if data := rest[size:]; len(data) > 0 {
		m.Data = bytes.Clone(data)
	}
	return m, nil
}

func inFile(b []byte) (*os.File, error) {
	if len(b) > maxBody {
		return nil, fmt.Errorf("a message of %d bytes is too large", len(b))
	}
	fd, err := unix.MemfdCreate("message", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "message")
	if _, err := f.WriteAt(b, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ofFile returns the message in a file, and closes it.
func ofFile(f *os.File) (m Message, err error) {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxBody))
	if err == nil {
		m, err = decode(b)
	}
	return m, errors.Join(err, f.Close())
}

// Receive returns the next message. The caller owns its files. Only one goroutine may receive.
func (c *Conn) Receive() (m Message, err error) {
	rights := make([]byte, unix.CmsgSpace(maxFiles*4))
	n, nr, _, _, err := c.conn.ReadMsgUnix(c.buf, rights)
	if err != nil {
		return m, err
	}
	if n == 0 {
		return m, io.EOF
	}
	files, err := filesOf(rights[:nr])
	if err == nil {
		m, err = decode(c.buf[:n])
	}
	if err == nil && m.Body && len(files) > 0 {
		last := len(files) - 1
		m, err = ofFile(files[last])
		files = files[:last]
	}
	if err != nil {
		CloseAll(files)
		return m, err
	}
	m.Files = files
	return m, nil
}

func filesOf(rights []byte) (files []*os.File, err error) {
	if len(rights) == 0 {
		return nil, nil
	}
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
			files = append(files, os.NewFile(uintptr(fd), "lent"))
		}
	}
	return files, nil
}

// CloseAll closes files whose content is no longer needed.
func CloseAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // its content is not needed
	}
}
