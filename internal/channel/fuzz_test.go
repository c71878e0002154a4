package channel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// FuzzHello: a hello comes from the other side. It is read completely, without any byte after it, or refused.
func FuzzHello(f *testing.F) {
	var good bytes.Buffer
	if err := writeHello(&good,
		clientHello{Min: 1, Max: 1, Session: randomID(), Shutdown: &Request{Op: OpShutdown, ID: "x"}}); err != nil {
		f.Fatal(err)
	}
	f.Add(good.Bytes())
	f.Add(append(good.Bytes(), "next"...))
	f.Add([]byte(magic + "\x00\x00\x10\x01"))
	f.Add([]byte(magic + "\xff\xff\xff\xff{}"))
	f.Add([]byte(magic + "\x00\x00\x00\x02{}"))
	f.Add([]byte(magic + "\x00\x00\x00\x1a{\"received\":-9,\"future\":[]}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, hello := range []any{new(clientHello), new(guestHello)} {
			r := bytes.NewReader(b)
			if err := readHello(r, hello); err != nil {
				continue
			}
			size := int(binary.BigEndian.Uint32(b[len(magic):]))
			if used := len(b) - r.Len(); size > maxHello || used != len(magic)+4+size {
				t.Errorf("a hello of %d bytes took %d", size, used)
			}
		}
	})
}

// FuzzSessionFrames: whatever a carrier delivers, a session accepts only bytes in order, and keeps what it must.
func FuzzSessionFrames(f *testing.F) {
	data := func(offset int64, text string) []byte {
		return append(appendOffset(appendHead(nil, frameData, offsetSize+len(text)), offset), text...)
	}
	ack := func(offset int64) []byte { return appendOffset(appendHead(nil, frameAck, offsetSize), offset) }
	f.Add(bytes.Join([][]byte{data(0, "abc"), ack(4), data(3, "d"), appendHead(nil, framePing, 0)}, nil), 2)
	f.Add(bytes.Join([][]byte{appendHead(nil, 77, 3), []byte("xyz"), data(0, "a")}, nil), 1)
	f.Add(data(1, "gap"), 5)
	f.Add(ack(-1), 5)
	f.Add(ack(1<<40), 5)
	f.Add(appendHead(nil, frameData, maxFrame+1), 3)
	f.Add(append(appendHead(nil, frameBye, 3), "end"...), 3)
	f.Fuzz(func(t *testing.T, stream []byte, piece int) {
		s := newSession(randomID(), maxUnacknowledged)
		if _, err := s.Write([]byte("what we sent")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.fence(1); err != nil {
			t.Fatal(err)
		}
		c := newCarrier(&script{in: bytes.NewReader(stream), piece: piece, sent: make(chan struct{})})
		if err := s.attach(c, 1, 0); err != nil {
			t.Fatal(err)
		}
		got := make(chan []byte)
		go func() {
			b, _ := io.ReadAll(s) //nolint:errcheck // it ends with the carrier
			got <- b
		}()
		<-c.gone
		s.end(net.ErrClosed)
		s.wg.Wait()
		if taken, want := <-got, sequence(stream); !bytes.Equal(taken, want) {
			t.Errorf("%q was taken, want %q", taken, want)
		}
	})
}

// sequence returns the bytes that a simple reader accepts from the frames of a stream.
func sequence(b []byte) (taken []byte) {
	acked := int64(0)
	for len(b) >= frameHeader {
		kind, size := b[0], int64(binary.BigEndian.Uint32(b[1:]))
		b = b[frameHeader:]
		if size > maxFrame || kind == frameData && size < offsetSize || kind == frameAck && size != offsetSize ||
			(kind == framePing || kind == framePong) && size != 0 || kind == frameBye {
			return taken
		}
		payload := b[:min(size, int64(len(b)))]
		b = b[len(payload):]
		if kind != frameData && kind != frameAck {
			continue
		}
		if len(payload) < offsetSize {
			return taken
		}
		offset := int64(binary.BigEndian.Uint64(payload))
		if kind == frameData {
			if offset != int64(len(taken)) {
				return taken
			}
			taken = append(taken, payload[offsetSize:]...)
		} else if offset < acked || offset > int64(len("what we sent")) {
			return taken
		} else {
			acked = offset
		}
	}
	return taken
}

// script is a carrier that delivers a written stream in pieces. With sent, it waits for the first Write.
type script struct {
	net.Conn
	in    *bytes.Reader
	piece int
	once  sync.Once
	sent  chan struct{}
}

func (s *script) Read(p []byte) (int, error) {
	if s.sent != nil {
		<-s.sent
	}
	return s.in.Read(p[:min(len(p), max(1, s.piece))])
}

func (s *script) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.sent) })
	return len(p), nil
}

func (s *script) Close() error { return nil }

// FuzzRequest: a request uses memory for received bytes only, and is bounded.
func FuzzRequest(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x15{\"op\":\"get\",\"id\":\"x\"}rest"))
	f.Add([]byte("\xff\xff\xff\xff{"))
	f.Add([]byte("\x00\x00\x00\x0c{\"op\":\"exec\"}"))
	f.Add([]byte("\x00\x00\x00\x11{\"op\":\"shutdown\"}\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := readRequest(bytes.NewReader(b), 1<<16)
		if err == nil && (len(r.ID) > maxID || r.changes() && r.ID == "") {
			t.Errorf("%+v was taken", r)
		}
	})
}

// FuzzInput: however an input's frames are cut, only an end frame ends it without error.
func FuzzInput(f *testing.F) {
	var good bytes.Buffer
	if err := sendInput(&good, bytes.NewReader([]byte("content"))); err != nil {
		f.Fatal(err)
	}
	f.Add(good.Bytes(), 1)
	f.Add(good.Bytes()[:good.Len()-1], 3)
	f.Add(append(appendHead(nil, inputFailed, 3), "why"...), 2)
	f.Add(append(appendHead(nil, 99, 1), 0, inputEnd, 0, 0, 0, 0), 2)
	f.Add(appendHead(nil, inputData, maxInput+1), 9)
	f.Fuzz(func(t *testing.T, stream []byte, piece int) {
		in := &input{r: &script{in: bytes.NewReader(stream), piece: piece}}
		content, err := io.ReadAll(in)
		want, ended := inputOf(stream)
		if !bytes.Equal(content, want) || (err == nil) != ended {
			t.Errorf("%q, %v; want %q, ended %t", content, err, want, ended)
		}
	})
}

// inputOf returns what a simple reader reads from an input.
func inputOf(b []byte) (content []byte, ended bool) {
	for len(b) >= inputHeader {
		kind, size := b[0], int64(binary.BigEndian.Uint32(b[1:]))
		b = b[inputHeader:]
		if size > maxInput {
			return content, false
		}
		payload := b[:min(size, int64(len(b)))]
		b = b[len(payload):]
		switch kind {
		case inputData:
			content = append(content, payload...)
		case inputEnd:
			return content, true
		case inputFailed:
			return content, false
		}
		if int64(len(payload)) < size {
			return content, false
		}
	}
	return content, false
}

// FuzzGuest: whatever a guest sends after a valid hello, a call ends, and so does the client.
func FuzzGuest(f *testing.F) {
	muxed := func(offset int64, kind byte, flags uint16, id, length uint32, body string) []byte {
		b := appendOffset(appendHead(nil, frameData, offsetSize+muxHeader+len(body)), offset)
		b = binary.BigEndian.AppendUint16(append(b, muxVersion, kind), flags)
		b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, id), length)
		return append(b, body...)
	}
	var answer bytes.Buffer
	if err := wire.NewWriter(&answer).Result(wire.Result{}); err != nil {
		f.Fatal(err)
	}
	f.Add(bytes.Join([][]byte{muxed(0, 1, 2, 1, 0, ""), muxed(muxHeader, 0, 0, 1, uint32(answer.Len()), answer.String())},
		nil))
	f.Add(muxed(0, 1, muxSYN, 2, 0, ""))
	f.Add(muxed(0, 1, muxRST, 1, 0, ""))
	f.Add(muxed(0, 1, muxFIN, 1, 0xffffffff, ""))
	f.Add(muxed(0, muxPing, muxSYN, 0, 1, ""))
	f.Add(muxed(0, muxGoAway, 0, 0, 1, ""))
	f.Add(muxed(0, 0, 0, 1, 5, "\x03\xff\xff\xff\xff"))
	f.Add(muxed(0, 0, 0, 3, 3, "abc"))
	f.Fuzz(func(t *testing.T, says []byte) {
		c := NewClient(ClientConfig{Dial: func(context.Context) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				defer theirs.Close()
				if readHello(theirs, new(clientHello)) != nil ||
					writeHello(theirs, guestHello{Version: 1, Min: 1, Max: 1, Known: true}) != nil {
					return
				}
				go io.Copy(io.Discard, theirs) //nolint:errcheck // the client closes the carrier
				theirs.Write(says)             //nolint:errcheck // the client closes the carrier
			}()
			return ours, nil
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		result, err := c.Call(ctx, Request{Op: OpUsage}, Streams{})
		if err == nil && len(result.Message) > 64<<10 {
			t.Errorf("%d bytes of message", len(result.Message))
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, ErrLost) && !errors.As(err, new(fatal)) {
			t.Log(err)
		}
		c.Close() //nolint:errcheck // it always returns nil
	})
}
