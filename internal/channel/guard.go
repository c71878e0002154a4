package channel

import (
	"encoding/binary"
	"io"
	"log"
	"math"
	"sync"

	"github.com/hashicorp/yamux"
)

// multiplex returns the configuration of the streams on a session. Its own keepalive and timeouts are off: a
// frozen guest may thaw at any time, and the session decides when a carrier is dead.
func multiplex() *yamux.Config {
	return &yamux.Config{
		AcceptBacklog: maxStreams, KeepAliveInterval: never, ConnectionWriteTimeout: never,
		MaxStreamWindowSize: 256 << 10, Logger: log.New(io.Discard, "", 0),
	}
}

// The frames of yamux: one byte version, one type, two flags, four stream id and four length, big endian.
// Only data frames have a payload.
const (
	muxHeader  = 12
	muxVersion = 0
	muxData    = 0
	muxPing    = 2
	muxGoAway  = 3
	muxSYN     = 1
	muxFIN     = 4
	muxRST     = 8
)

// guard checks the frames of the multiplexer before the multiplexer handles them, and reports the start and
// end of streams; the multiplexer only reports what a reader of the stream has reached. It passes on whole
// frames, because the multiplexer holds a stream's lock while it reads one.
type guard struct {
	*session
	// opens gets the ids of streams that the other side opens, closes those of streams that it will not write
	// to again. An error of opens ends the session.
	opens  func(id uint32) error
	closes func(id uint32)

	header [muxHeader]byte
	memory *muxFrame // a frame with a payload
	whole  []byte    // the rest of a frame, in header or memory
}

type muxFrame [muxHeader + maxMuxData]byte

var muxFrames = sync.Pool{New: func() any { return new(muxFrame) }}

// Read implements io.Reader.
func (g *guard) Read(p []byte) (int, error) {
	if len(g.whole) == 0 {
		if err := g.next(); err != nil {
			g.end(err)
			return 0, err
		}
	}
	n := copy(p, g.whole)
	if g.whole = g.whole[n:]; len(g.whole) == 0 && g.memory != nil {
		muxFrames.Put(g.memory)
		g.memory = nil
	}
	return n, nil
}

// next reads a whole frame.
func (g *guard) next() error {
	head := g.header[:]
	if _, err := io.ReadFull(g.session, head); err != nil {
		return err
	}
	size, err := g.check(head)
	if err != nil || size == 0 {
		g.whole = head
		return err
	}
	g.memory, _ = muxFrames.Get().(*muxFrame)
	frame := append(g.memory[:0], head...)[:muxHeader+size]
	if _, err := io.ReadFull(g.session, frame[muxHeader:]); err != nil {
		return err
	}
	g.whole = frame
	return nil
}

// check returns the size of the payload after a header.
func (g *guard) check(head []byte) (int, error) {
	kind, flags := head[1], binary.BigEndian.Uint16(head[2:])
	id, length := binary.BigEndian.Uint32(head[4:]), binary.BigEndian.Uint32(head[8:])
	switch {
	case head[0] != muxVersion || kind > muxGoAway:
		return 0, violationf("a stream frame of version %d and type %d", head[0], kind)
	case kind == muxPing:
		return 0, violationf("a ping of the multiplexer")
	case kind == muxGoAway:
		return 0, nil
	case kind == muxData && length > maxMuxData:
		return 0, violationf("a stream frame of %d bytes", length)
	}
	if flags&muxSYN != 0 {
		if id == 0 || id == math.MaxUint32 {
			return 0, violationf("stream %d was opened", id)
		}
		if err := g.opens(id); err != nil {
			return 0, err
		}
	}
	if flags&(muxFIN|muxRST) != 0 {
		g.closes(id)
	}
	if kind == muxData {
		return int(length), nil
	}
	return 0, nil
}
