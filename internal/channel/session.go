package channel

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// session is a connection that outlives its carriers: each written byte arrives once, in order, however often
// carriers break. It implements io.ReadWriteCloser for the multiplexer, which reads in one goroutine and
// writes in another.
//
// Each direction counts its bytes. The sender keeps bytes until the receiver acknowledges them. On a new
// carrier it continues where the receiver says it is.
type session struct {
	id string

	mu       sync.Mutex
	work     sync.Cond // the carrier's writer has work, or its carrier is gone
	space    sync.Cond // pace may continue
	attached sync.Cond // Read may continue
	signs    sync.Cond // the other side gave a sign of life, or the session or its carrier has changed
	carrier  *carrier  // nil: none
	attempt  uint64    // attempt of the latest carrier
	received int64     // bytes that Read has returned
	told     int64     // bytes that we have acknowledged
	out      backlog
	buffer   int   // limit that pace keeps out close to
	sent     int64 // the offset that the carrier's writer continues with
	heard    time.Time
	ended    error // why the session has ended

	wg sync.WaitGroup // writers and closers of carriers
}

func newSession(id string, buffer int) *session {
	s := &session{id: id, buffer: buffer, heard: time.Now()}
	s.work.L, s.space.L, s.attached.L, s.signs.L = &s.mu, &s.mu, &s.mu, &s.mu
	return s
}

// fence ends the use of the current carrier and of every earlier attempt. It returns the number of bytes
// received so far: no byte of an earlier carrier is accepted after that.
func (s *session) fence(attempt uint64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return 0, s.ended
	}
	if attempt <= s.attempt {
		return 0, errFenced
	}
	s.attempt = attempt
	s.drop(s.carrier, errFenced)
	return s.received, nil
}

// attach continues on a carrier after both sides have exchanged their received counts. attempt is the fence's.
func (s *session) attach(c *carrier, attempt uint64, peerReceived int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended != nil:
		return s.ended
	case attempt != s.attempt:
		return errFenced
	case peerReceived < s.out.first || peerReceived > s.out.end():
		return violationf("it has %d bytes; it acknowledged %d and %d were sent", peerReceived, s.out.first, s.out.end())
	}
	s.out.release(peerReceived)
	s.space.Broadcast()
	s.sent, s.told, s.heard = peerReceived, s.received, time.Now()
	s.carrier = c
	s.attached.Broadcast()
	s.signs.Broadcast()
	s.wg.Go(func() { s.write(c) })
	return nil
}

// detach closes a carrier. The session then waits for the next one.
func (s *session) detach(c *carrier, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(c, why)
}

// drop is detach with the lock held. Closing a carrier may take time, for example for a closing handshake;
// fencing does not wait for it.
func (s *session) drop(c *carrier, why error) {
	if c == nil || s.carrier != c {
		return
	}
	s.carrier, c.why = nil, why
	s.wg.Go(func() { c.conn.Close() }) //nolint:errcheck // the carrier is not used again
	close(c.gone)
	s.work.Broadcast()
}

// end ends the session permanently.
func (s *session) end(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finish(why)
}

// finish is end with the lock held.
func (s *session) finish(why error) {
	if s.ended == nil {
		s.ended = why
	}
	s.drop(s.carrier, why)
	s.out.release(s.out.end())
	s.sent = s.out.first
	s.space.Broadcast()
	s.attached.Broadcast()
	s.signs.Broadcast()
}

// leave ends the session and tells the other side, if a carrier accepts the message within byeLimit.
func (s *session) leave(why string) {
	s.mu.Lock()
	c := s.carrier
	if c != nil {
		c.byeDue, c.bye = true, why[:min(len(why), maxBye)]
		s.work.Broadcast()
	}
	s.mu.Unlock()
	if c != nil {
		limit := time.NewTimer(byeLimit)
		defer limit.Stop()
		select {
		case <-c.gone:
		case <-limit.C:
		}
	}
	s.end(net.ErrClosed)
	s.wg.Wait()
}

// reason returns why the session ended, or nil.
func (s *session) reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// ping asks the other side for a sign of life.
func (s *session) ping(c *carrier) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.pingDue = true
	s.work.Broadcast()
}

// lastHeard returns the time of the other side's latest sign of life.
func (s *session) lastHeard() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard
}

// Close implements io.Closer.
func (s *session) Close() error {
	s.end(net.ErrClosed)
	s.wg.Wait()
	return nil
}

// Write implements io.Writer. It stores p for sending and never blocks, because the multiplexer holds locks
// that a call needs to return. Senders of bulk data block before, in pace.
func (s *session) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil && s.out.n+len(p) > maxBacklog {
		s.finish(violationf("it left %d bytes without an acknowledgement", s.out.n))
	}
	if s.ended != nil {
		return 0, s.ended
	}
	s.out.add(p)
	s.work.Broadcast()
	return len(p), nil
}

// pace waits until enough is acknowledged. Once ctx has ended, nothing may be sent.
func (s *session) pace(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out.n < s.buffer || s.ended != nil {
		return errors.Join(s.ended, ctx.Err())
	}
	defer context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.space.Broadcast()
	})()
	for s.out.n >= s.buffer && s.ended == nil && ctx.Err() == nil {
		s.space.Wait()
	}
	return errors.Join(s.ended, ctx.Err())
}

// paced writes to a stream of a session in pieces that fit a multiplexer frame.
type paced struct {
	ctx    context.Context
	s      *session
	stream io.Writer
}

// Write implements io.Writer.
func (p paced) Write(b []byte) (int, error) {
	total := 0
	for {
		if err := p.s.pace(p.ctx); err != nil {
			return total, err
		}
		n, err := p.stream.Write(b[total:min(len(b), total+maxMuxData)])
		total += n
		if err != nil || total == len(b) {
			return total, err
		}
	}
}

// write sends what is due on one carrier until the carrier is gone. Only this goroutine writes to it: the
// reader never waits for a carrier that accepts nothing.
func (s *session) write(c *carrier) {
	for {
		batch, ok := s.nextBatch(c)
		if !ok {
			return
		}
		_, err := c.conn.Write(batch.bytes)
		scratches.Put(batch.memory)
		if err == nil && batch.last {
			err = net.ErrClosed
		}
		if err != nil {
			s.detach(c, err)
			return
		}
	}
}

// batch is what one Write sends; after the last one the carrier is closed.
type batch struct {
	memory *scratch
	bytes  []byte
	last   bool
}

// nextBatch waits for something to send, and returns false when the carrier is gone.
func (s *session) nextBatch(c *carrier) (batch, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.carrier == c && !s.due(c) {
		s.work.Wait()
	}
	if s.carrier != c {
		return batch{}, false
	}
	memory, _ := scratches.Get().(*scratch)
	b := memory[:0]
	if c.pongDue {
		b = appendHead(b, framePong, 0)
	}
	if c.pingDue {
		b = appendHead(b, framePing, 0)
	}
	if s.received > s.told {
		b = appendOffset(appendHead(b, frameAck, offsetSize), s.received)
		s.told = s.received
	}
	if n := int(min(s.out.end()-s.sent, maxData)); n > 0 {
		b = appendOffset(appendHead(b, frameData, offsetSize+n), s.sent)
		s.sent += int64(s.out.copyFrom(s.sent, b[len(b):len(b)+n]))
		b = b[:len(b)+n]
	}
	if c.byeDue {
		b = append(appendHead(b, frameBye, len(c.bye)), c.bye...)
	}
	last := c.byeDue
	c.pongDue, c.pingDue, c.byeDue = false, false, false
	return batch{memory, b, last}, true
}

// due reports whether a carrier's writer has something to send. Small acknowledgements wait for other frames.
func (s *session) due(c *carrier) bool {
	return s.sent < s.out.end() || c.pingDue || c.pongDue || c.byeDue || s.received-s.told >= ackEvery
}

// Read implements io.Reader, for one goroutine. Without a carrier it waits for the next one.
func (s *session) Read(p []byte) (int, error) {
	for {
		c, err := s.await()
		if err != nil {
			return 0, err
		}
		n, err := s.readFrom(c, p)
		if n > 0 {
			return n, nil
		}
		if broken, ends := errors.AsType[fatal](err); ends {
			s.end(broken)
		} else if err != nil {
			s.detach(c, err)
		}
	}
}

func (s *session) await() (*carrier, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.carrier == nil && s.ended == nil {
		s.attached.Wait()
	}
	return s.carrier, s.ended
}

// readFrom reads bytes of the session from a carrier, or one frame of another kind.
func (s *session) readFrom(c *carrier, p []byte) (int, error) {
	if c.left == 0 {
		f, err := c.next()
		if err != nil {
			return 0, err
		}
		if err := s.take(c, f); err != nil || f.kind != frameData {
			return 0, err
		}
		c.left = f.left
	}
	if c.left == 0 || len(p) == 0 {
		return 0, nil
	}
	n, err := c.in.Read(p[:min(len(p), c.left)])
	if n == 0 {
		return 0, err
	}
	c.left -= n
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.carrier != c { // the other side will send these bytes again
		return 0, errFenced
	}
	s.received += int64(n)
	s.heard = time.Now()
	s.signs.Broadcast()
	if s.due(c) {
		s.work.Broadcast()
	}
	return n, nil
}

// take handles the head of a frame.
func (s *session) take(c *carrier, f frame) error {
	bye := ""
	if f.kind == frameBye {
		text := make([]byte, f.left)
		if _, err := io.ReadFull(c.in, text); err != nil {
			return err
		}
		bye = string(text)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.carrier != c {
		return errFenced
	}
	s.heard = time.Now()
	s.signs.Broadcast()
	switch f.kind {
	case frameData:
		if f.offset != s.received {
			return violationf("byte %d of the session follows byte %d", f.offset, s.received)
		}
	case frameAck:
		if f.offset < s.out.first || f.offset > s.sent {
			return violationf("it acknowledged byte %d; %d are acknowledged and %d are sent", f.offset, s.out.first, s.sent)
		}
		s.out.release(f.offset)
		s.space.Broadcast()
	case framePing:
		c.pongDue = true
		s.work.Broadcast()
	case frameBye:
		return fatal{"the other side ended the session: " + bye}
	}
	return nil
}

// attachedTo returns the current carrier, or nil.
func (s *session) attachedTo() *carrier {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.carrier
}
