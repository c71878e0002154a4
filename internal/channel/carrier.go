package channel

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// The kinds of frames on a carrier. A frame is one byte of kind, four bytes of length (big endian) and the
// payload. A reader skips unknown kinds.
const (
	frameData byte = 1 // eight bytes of offset, and the bytes of the session from that offset
	frameAck  byte = 2 // eight bytes: the number of bytes of the session that the sender has
	framePing byte = 3 // empty; asks for a pong
	framePong byte = 4 // empty
	frameBye  byte = 5 // text: why the session ends
)

const (
	frameHeader = 5
	offsetSize  = 8
)

// errFenced ends the use of a carrier that was replaced.
var errFenced = errors.New("another carrier has replaced this one")

// fatal is an error that a new carrier cannot fix. It ends the session.
type fatal struct{ what string }

func (f fatal) Error() string { return f.what }

// violationf returns the error of a peer that violates the protocol.
func violationf(format string, args ...any) error {
	return fatal{"the other side violated the protocol: " + fmt.Sprintf(format, args...)}
}

// carrier is one connection of a session. The session's mutex guards the frames that are due.
type carrier struct {
	conn net.Conn
	gone chan struct{} // closed when the session has dropped it
	why  error         // set before gone is closed

	pingDue, pongDue, byeDue bool
	bye                      string

	// Only one goroutine reads.
	in     *bufio.Reader
	header [frameHeader + offsetSize]byte
	left   int // unread bytes of a data frame
}

func newCarrier(conn net.Conn) *carrier {
	return &carrier{conn: conn, in: bufio.NewReaderSize(conn, 4<<10), gone: make(chan struct{})}
}

// scratch is the buffer for one write: one frame of each kind. A writer needs it only during the write.
type scratch [frameHeader + maxFrame + 4*(frameHeader+offsetSize) + maxBye]byte

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// appendHead appends the head of a frame with a payload of a size.
func appendHead(b []byte, kind byte, size int) []byte {
	return binary.BigEndian.AppendUint32(append(b, kind), uint32(size))
}

func appendOffset(b []byte, offset int64) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(offset))
}

// frame is the head of a frame. offset belongs to data and acknowledgements; left is the length of the rest.
type frame struct {
	kind   byte
	offset int64
	left   int
}

// next reads the head of the next frame.
func (c *carrier) next() (frame, error) {
	head := c.header[:frameHeader]
	if _, err := io.ReadFull(c.in, head); err != nil {
		return frame{}, err
	}
	f := frame{kind: head[0]}
	length := binary.BigEndian.Uint32(head[1:])
	if length > maxFrame {
		return frame{}, violationf("a frame of kind %d claims %d bytes", f.kind, length)
	}
	f.left = int(length)
	wrong := false
	switch f.kind {
	case frameData:
		wrong = f.left < offsetSize
	case frameAck:
		wrong = f.left != offsetSize
	case framePing, framePong:
		wrong = f.left != 0
	case frameBye:
		wrong = f.left > maxBye
	default:
		_, err := c.in.Discard(f.left)
		return f, err
	}
	if wrong {
		return frame{}, violationf("a frame of kind %d has %d bytes", f.kind, f.left)
	}
	if f.kind != frameData && f.kind != frameAck {
		return f, nil
	}
	word := c.header[:offsetSize]
	if _, err := io.ReadFull(c.in, word); err != nil {
		return frame{}, err
	}
	f.offset, f.left = int64(binary.BigEndian.Uint64(word)), f.left-offsetSize
	if f.offset < 0 {
		return frame{}, violationf("a frame of kind %d has the offset %d", f.kind, f.offset)
	}
	return f, nil
}
