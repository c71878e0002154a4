package channel

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// served is the guest's side of a session.
type served struct {
	*session
	server *Server
	mux    *yamux.Session
	ctx    context.Context
	cancel context.CancelFunc

	opsMu  sync.Mutex
	ops    map[uint32]*operation // by stream id
	expiry *time.Timer           // running while there is no carrier
}

// operation is a stream of a session. Its context ends when the client gives it up.
type operation struct {
	ctx    context.Context
	cancel context.CancelFunc
}

// begin starts a session. The caller must hold the server's mutex.
func (s *Server) begin(id string) (*served, error) {
	session := &served{session: newSession(id, s.cfg.ResendBuffer), server: s, ops: map[uint32]*operation{}}
	session.ctx, session.cancel = context.WithCancel(s.ctx)
	g := &guard{session: session.session, opens: session.opens, closes: session.closes}
	mux, err := yamux.Server(g, multiplex())
	if err != nil {
		session.cancel()
		return nil, err
	}
	session.mux = mux
	s.wg.Go(session.run)
	return session, nil
}

// opens creates a stream's context before its first byte is read, because the client's next frame may end it.
func (s *served) opens(id uint32) error {
	s.opsMu.Lock()
	defer s.opsMu.Unlock()
	if len(s.ops) >= maxStreams || s.ops[id] != nil {
		return violationf("stream %d was opened in addition to %d others", id, len(s.ops))
	}
	op := new(operation)
	op.ctx, op.cancel = context.WithCancel(s.ctx)
	s.ops[id] = op
	return nil
}

// closes ends an operation: a client closes its stream once it has the result or gives up.
func (s *served) closes(id uint32) {
	s.opsMu.Lock()
	defer s.opsMu.Unlock()
	if op := s.ops[id]; op != nil {
		op.cancel()
	}
}

func (s *served) run() {
	var wg sync.WaitGroup
	for {
		stream, err := s.mux.AcceptStream()
		if err != nil {
			break
		}
		s.opsMu.Lock()
		op, busy := s.ops[stream.StreamID()], len(s.ops) > s.server.cfg.MaxStreams
		s.opsMu.Unlock()
		wg.Go(func() { s.carryOut(op, stream, busy) })
	}
	s.cancel()
	s.expire(false)
	s.mux.Close() //nolint:errcheck // it always returns nil
	wg.Wait()
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	if s.server.sessions[s.id] == s {
		delete(s.server.sessions, s.id)
	}
}

// expire starts or stops the timer of a session without a carrier.
func (s *served) expire(start bool) {
	s.opsMu.Lock()
	defer s.opsMu.Unlock()
	if s.expiry != nil {
		s.expiry.Stop()
		s.expiry = nil
	}
	if start && s.attachedTo() == nil && s.reason() == nil {
		s.expiry = time.AfterFunc(s.server.cfg.Detached, func() {
			if s.attachedTo() == nil {
				s.end(fmt.Errorf("the session had no carrier for %s", s.server.cfg.Detached))
			}
		})
	}
}

// staler reports whether s makes room before t: sessions without a carrier come first, then those heard from
// less recently.
func (s *served) staler(t *served) bool {
	if detached, other := s.attachedTo() == nil, t.attachedTo() == nil; detached != other {
		return detached
	}
	return s.lastHeard().Before(t.lastHeard())
}

// carryOut serves one stream.
func (s *served) carryOut(op *operation, stream *yamux.Stream, busy bool) {
	defer func() {
		stream.Close() //nolint:errcheck // the session reports its end
		op.cancel()
		s.opsMu.Lock()
		delete(s.ops, stream.StreamID())
		s.opsMu.Unlock()
	}()
	defer context.AfterFunc(op.ctx, func() {
		stream.SetDeadline(time.Unix(1, 0)) //nolint:errcheck // it always returns nil
	})()
	out := wire.NewWriter(paced{op.ctx, s.session, stream})
	result := wire.Result{Problem: wire.ProblemFailed, Message: "the guest has too many running operations"}
	if !busy {
		r, err := readRequest(stream, s.server.cfg.MaxRequest)
		if op.ctx.Err() != nil {
			return
		}
		if err != nil {
			result = wire.Result{Problem: wire.ProblemInvalid, Message: err.Error()}
		} else {
			result = s.server.carryOut(op.ctx, r, &input{r: stream}, out)
		}
	}
	if err := out.Result(bounded(result)); err != nil && op.ctx.Err() == nil {
		s.server.cfg.Log.Debug("send a result", "session", s.id, "error", err)
	}
}

// ServeOperation serves an authenticated connection that carries a single operation, and closes it. The operation's
// context ends when the client closes the connection.
func (s *Server) ServeOperation(ctx context.Context, conn net.Conn) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		conn.Close() //nolint:errcheck // it was not used
		return ErrClosed
	}
	s.wg.Add(1)
	s.mu.Unlock()
	defer s.wg.Done()
	defer conn.Close() //nolint:errcheck // the connection is not used again
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	running, gone := context.WithCancel(ctx)
	defer gone()
	stop := context.AfterFunc(running, func() { conn.Close() })
	defer stop()
	out := wire.NewWriter(conn)
	r, err := readRequest(conn, s.cfg.MaxRequest)
	if err != nil {
		return errors.Join(err, out.Result(bounded(wire.Result{Problem: wire.ProblemInvalid, Message: err.Error()})))
	}
	in, to := io.Pipe()
	left := make(chan error, 1)
	go func() { left <- pass(to, watched{conn, gone}) }() // it ends with the connection
	result := s.carryOut(running, r, in, out)
	in.Close() //nolint:errcheck // it always returns nil
	err = out.Result(bounded(result))
	if !stop() {
		return err // the client left, with or without the result, or the server is closing
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	// Wait until the client closes: an earlier close may lose output.
	return errors.Join(err, endOutput(conn), <-left)
}

// watched is a client whose end is seen by whatever reads from it.
type watched struct {
	io.Reader
	gone context.CancelFunc
}

// Read implements io.Reader.
func (w watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if err != nil {
		w.gone()
	}
	return n, err
}

// pass passes the input on, and reads until the client closes the connection.
func pass(to *io.PipeWriter, client io.Reader) error {
	_, err := io.Copy(to, &input{r: client})
	to.CloseWithError(err) //nolint:errcheck // it always returns nil
	_, err = io.Copy(io.Discard, client)
	return err
}

// endOutput ends the output, and gives the client some time to close the connection.
func endOutput(conn net.Conn) error {
	if err := conn.SetReadDeadline(time.Now().Add(streamCloseLimit)); err != nil {
		return err
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// readRequest reads the first message of a stream.
func readRequest(r io.Reader, limit int) (Request, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Request{}, fmt.Errorf("read the request: %w", err)
	}
	size := int64(binary.BigEndian.Uint32(head[:]))
	if size > int64(limit) {
		return Request{}, fmt.Errorf("read the request: it claims %d bytes, at most %d are allowed", size, limit)
	}
	text, err := io.ReadAll(io.LimitReader(r, size)) // this allocates memory for received bytes, not for the claimed size
	if err == nil && int64(len(text)) < size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return Request{}, fmt.Errorf("read the request: %w", err)
	}
	var request Request
	if err := json.Unmarshal(text, &request); err != nil {
		return Request{}, fmt.Errorf("read the request: %w", err)
	}
	switch {
	case len(request.ID) > maxID:
		return Request{}, fmt.Errorf("the request's id has %d bytes, at most %d are allowed", len(request.ID), maxID)
	case request.ID == "" && request.changes():
		return Request{}, fmt.Errorf("the request for %s has no id", request.Op)
	}
	return request, nil
}

// carryOut carries out one request. If it changes something, it runs at most once for its id.
func (s *Server) carryOut(ctx context.Context, r Request, in io.Reader, out *wire.Writer) wire.Result {
	if !r.changes() {
		return s.handle(ctx, r, in, out)
	}
	s.mu.Lock()
	if s.running[r.ID] {
		s.mu.Unlock()
		return wire.Result{Problem: wire.ProblemConflict, Message: fmt.Sprintf("operation %s is already running", r.ID)}
	}
	s.running[r.ID] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.running, r.ID)
		s.mu.Unlock()
	}()
	prior, err := s.cfg.Journal.Begin(r.ID, r.Op)
	if err != nil {
		return wire.Result{
			Problem: wire.ProblemFailed,
			Message: fmt.Sprintf("record operation %s: %v; nothing was done", r.ID, err),
		}
	}
	if prior != nil {
		return Repeated(r, *prior)
	}
	result := s.handle(ctx, r, in, out)
	if result.Problem != "" && ctx.Err() != nil && !r.Op.Runs() {
		// The client gave up before the operation was complete, so a repetition must be able to complete it.
		err = s.cfg.Journal.Forget(r.ID, r.Op)
	} else {
		err = s.cfg.Journal.End(r.ID, r.Op, result)
	}
	if err != nil { // the result is valid; a repetition gets less information
		s.cfg.Log.Error("record the end of an operation", "operation", r.ID, "error", err)
	}
	return result
}

// Repeated answers a request whose id has already begun.
func Repeated(r Request, prior Record) wire.Result {
	switch {
	case prior.Op != r.Op:
		return wire.Result{
			Problem: wire.ProblemInvalid,
			Message: fmt.Sprintf("the id %s belongs to an operation %s", r.ID, prior.Op),
		}
	case r.Op.Runs():
		return wire.Result{
			Problem: wire.ProblemConflict,
			Message: fmt.Sprintf("command %s was started before; follow it", r.ID),
		}
	case prior.Ended:
		return prior.Result
	default:
		return wire.Result{
			Problem: wire.ProblemUnknown,
			Message: fmt.Sprintf("operation %s began before the guest restarted; "+
				"it is not known whether it was carried out", r.ID),
		}
	}
}

// bounded returns a result that fits its frame.
func bounded(result wire.Result) wire.Result {
	result.Message = cut(result.Message, maxMessage)
	return result
}
