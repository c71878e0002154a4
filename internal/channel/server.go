package channel

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// ServerConfig configures a Server. Zero values take the documented defaults.
type ServerConfig struct {
	// Release names the guest's release in clients' logs. Boot changes when the guest restarts; the default
	// is random.
	Release, Boot string
	// Life changes when the sandbox restarts; "" if requests must not be repeated with Request.Life.
	Life string
	// Journal records operations; the default is NewJournal().
	Journal Journal
	// MaxSessions limits the sessions, 16 by default. Beyond it, the one heard from least recently ends.
	MaxSessions int
	// MaxStreams limits the concurrent operations of each session, 192 by default and 256 at most.
	MaxStreams int
	// MaxRequest limits a request, 4 MiB by default.
	MaxRequest int
	// ResendBuffer limits a session's unacknowledged output, 1 MiB by default.
	ResendBuffer int
	// Detached is how long a session without a carrier is kept, 10 minutes by default.
	Detached time.Duration
	Log      *slog.Logger

	versions versions
}

func (cfg ServerConfig) withDefaults() ServerConfig {
	cfg.Boot = cmp.Or(cfg.Boot, randomID())
	cfg.MaxSessions = cmp.Or(cfg.MaxSessions, maxSessions)
	cfg.MaxStreams = min(cmp.Or(cfg.MaxStreams, maxStreams-maxStreams/4), maxStreams)
	cfg.MaxRequest = cmp.Or(cfg.MaxRequest, maxRequest)
	cfg.ResendBuffer = cmp.Or(cfg.ResendBuffer, maxUnacknowledged)
	cfg.Detached = cmp.Or(cfg.Detached, defaultDetached)
	cfg.versions = cmp.Or(cfg.versions, spoken)
	if cfg.Journal == nil {
		cfg.Journal = NewJournal()
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return cfg
}

// randomID returns 128 random bits as 32 hexadecimal digits.
func randomID() string {
	var b [16]byte
	rand.Read(b[:]) //nolint:errcheck // it never fails
	return hex.EncodeToString(b[:])
}

// Server is the guest's side of the protocol: it carries out clients' requests.
type Server struct {
	cfg    ServerConfig
	handle Handler
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // sessions and carriers

	mu       sync.Mutex
	closed   bool
	sessions map[string]*served
	running  map[string]bool // ids of running operations that change something
}

// NewServer returns a Server. It starts nothing before Serve.
func NewServer(h Handler, cfg ServerConfig) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	return &Server{
		cfg:      cfg.withDefaults(),
		handle:   h,
		ctx:      ctx,
		cancel:   cancel,
		sessions: map[string]*served{},
		running:  map[string]bool{},
	}
}

// Close ends all sessions and their operations, and waits for them and for all calls of Serve.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	all := s.sessions
	s.sessions = map[string]*served{}
	s.mu.Unlock()
	var leaving sync.WaitGroup
	for _, session := range all {
		leaving.Go(func() { session.leave("the guest is closing") })
	}
	leaving.Wait()
	s.cancel()
	s.wg.Wait()
	return nil
}

// Serve serves one carrier until the carrier breaks, its session ends or ctx ends, and closes it. It waits
// without a limit for the first byte: a carrier may be parked until a client needs it. An error says why the
// carrier was not used.
func (s *Server) Serve(ctx context.Context, conn net.Conn) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		conn.Close() //nolint:errcheck // it was not used
		return ErrClosed
	}
	s.wg.Add(1)
	s.mu.Unlock()
	defer s.wg.Done()
	defer conn.Close() //nolint:errcheck // the carrier is not used again
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	defer context.AfterFunc(s.ctx, func() { conn.Close() })()

	hello, limit, err := greet(conn)
	if err != nil {
		return err
	}
	defer limit.Stop()
	answer := guestHello{
		Min:     s.cfg.versions.Min,
		Max:     s.cfg.versions.Max,
		Release: s.cfg.Release,
		Boot:    s.cfg.Boot,
		Life:    s.cfg.Life,
	}
	answer.Version = s.cfg.versions.common(versions{hello.Min, hello.Max})
	switch {
	case answer.Version == 0:
		return errors.Join(errors.New("the client supports no protocol version of this guest"), writeHello(conn, answer))
	case hello.Shutdown != nil:
		return s.shutdown(conn, limit, answer, *hello.Shutdown)
	case !validSession(hello.Session) || hello.Received < 0:
		answer.Refused = "the hello contains no session"
		return errors.Join(errors.New(answer.Refused), writeHello(conn, answer))
	}
	return s.resume(conn, limit, hello, answer)
}

// greet reads the client's hello. The returned timer closes the carrier helloLimit after the first byte.
func greet(conn net.Conn) (clientHello, *time.Timer, error) {
	var first [1]byte
	if _, err := io.ReadFull(conn, first[:]); err != nil {
		return clientHello{}, nil, fmt.Errorf("read the hello: %w", err)
	}
	limit := time.AfterFunc(helloLimit, func() { conn.Close() })
	var hello clientHello
	if err := readHello(io.MultiReader(&oneByte{b: first[0]}, conn), &hello); err != nil {
		limit.Stop()
		return clientHello{}, nil, err
	}
	return hello, limit, nil
}

// oneByte returns first the byte that was read to wait for a client.
type oneByte struct {
	b    byte
	done bool
}

// Read implements io.Reader.
func (o *oneByte) Read(p []byte) (int, error) {
	if o.done || len(p) == 0 {
		return 0, io.EOF
	}
	p[0], o.done = o.b, true
	return 1, nil
}

// shutdown ends the sandbox. It arrives on a separate carrier, so that no other operation can delay it.
func (s *Server) shutdown(conn net.Conn, limit *time.Timer, answer guestHello, r Request) error {
	answer.Known = true
	if r.Op != OpShutdown {
		answer.Refused = "a carrier without a session is for shutdown only"
		return errors.Join(errors.New(answer.Refused), writeHello(conn, answer))
	}
	if err := writeHello(conn, answer); err != nil { // the client may be gone; its request is carried out anyway
		s.cfg.Log.Warn("answer a shutdown", "error", err)
	}
	limit.Stop()
	out := wire.NewWriter(conn)
	result := s.handle(s.ctx, r, eof{}, out)
	return out.Result(bounded(result))
}

// eof is an empty input.
type eof struct{}

// Read implements io.Reader.
func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// resume continues a session on a new carrier, and waits until the carrier is gone.
func (s *Server) resume(conn net.Conn, limit *time.Timer, hello clientHello, answer guestHello) error {
	session, err := s.find(hello)
	if err != nil {
		answer.Refused = err.Error()
		return errors.Join(err, writeHello(conn, answer))
	}
	if session == nil {
		return writeHello(conn, answer) // the session is unknown
	}
	defer session.expire(true)
	answer.Known = true
	answer.Received, err = session.fence(hello.Attempt)
	if err != nil {
		answer.Refused = err.Error()
		return errors.Join(err, writeHello(conn, answer))
	}
	if err := writeHello(conn, answer); err != nil {
		return err
	}
	if !limit.Stop() {
		return errors.New("the client did not read the answer to its hello in time")
	}
	c := newCarrier(conn)
	if err := session.attach(c, hello.Attempt, hello.Received); err != nil {
		if broken, ends := errors.AsType[fatal](err); ends {
			session.end(broken)
		}
		return err
	}
	session.expire(false)
	<-c.gone
	return nil
}

// find returns the session of a hello: an existing or new one, or nil if it should be resumed but is gone.
func (s *Server) find(hello clientHello) (*served, error) {
	s.mu.Lock()
	if session := s.sessions[hello.Session]; session != nil || hello.Resume || s.closed {
		s.mu.Unlock()
		return session, nil
	}
	var oldest *served
	if len(s.sessions) >= s.cfg.MaxSessions {
		for _, session := range s.sessions {
			if oldest == nil || session.staler(oldest) {
				oldest = session
			}
		}
		delete(s.sessions, oldest.id)
	}
	session, err := s.begin(hello.Session)
	if err == nil {
		s.sessions[hello.Session] = session
	}
	s.mu.Unlock()
	if oldest != nil {
		s.cfg.Log.Warn("the session limit is reached: ended the session heard from least recently",
			"session", oldest.id, "client", hello.Client)
		oldest.end(errors.New("the guest has too many sessions"))
	}
	return session, err
}
