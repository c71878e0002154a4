package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Limits of a relay.
const (
	maxSandboxes = 4096
	// maxClients limits concurrent connections to the control socket; others wait.
	maxClients = 8192
	// requestLimit is how long a client may take to send its request, and to receive a short answer.
	requestLimit = 10 * time.Second
	// acceptPause is the pause after a failed accept.
	acceptPause = 100 * time.Millisecond
)

// File modes. A sandbox may traverse its directory but neither list nor change it.
const (
	controlMode   = 0o700
	directoryMode = 0o711
	socketMode    = 0o600
	endMode       = 0o444
	accountsMode  = 0o444
)

// Config configures a relay.
type Config struct {
	// Root is the directory of the relay's data.
	Root string
	// Owner is the user that may dial the sockets of sandboxes.
	Owner int
	// Log receives warnings.
	Log *slog.Logger
}

// server is a running relay.
type server struct {
	Config

	mu        sync.Mutex // guards what follows
	endpoints map[string]*endpoint
	closed    bool
}

// Serve runs a relay until ctx ends, and returns once everything has stopped.
func Serve(ctx context.Context, c Config) error {
	s := &server{Config: c, endpoints: make(map[string]*endpoint)}
	if err := makeDir(filepath.Join(s.Root, ControlDir), controlMode); err != nil {
		return err
	}
	if err := makeDir(filepath.Join(s.Root, sandboxesDir), directoryMode); err != nil {
		return err
	}
	defer s.close()
	if err := s.resume(); err != nil {
		return err
	}
	control, err := listenAt(filepath.Join(s.Root, ControlDir, ControlSocket), os.Getuid())
	if err != nil {
		return fmt.Errorf("listen for reconcilers: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = control.Close() }) // stops accepting
	defer stop()
	return s.accept(ctx, control)
}

// makeDir creates a directory with a mode, regardless of the umask. An existing directory gets the mode.
func makeDir(path string, mode os.FileMode) error {
	if err := os.MkdirAll(path, mode); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}

// resume listens in each directory of an earlier run. If it fails for one, the next use retries.
func (s *server) resume() error {
	entries, err := os.ReadDir(filepath.Join(s.Root, sandboxesDir))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, entry := range entries {
		if !entry.IsDir() || !sandboxID().MatchString(entry.Name()) {
			continue
		}
		if _, err := s.open(entry.Name()); err != nil {
			s.Log.Warn("relay: a sandbox's socket could not be created; its next use retries",
				"sandbox", entry.Name(), "error", err)
		}
	}
	return nil
}

func (s *server) accept(ctx context.Context, control *net.UnixListener) error {
	var clients sync.WaitGroup
	defer clients.Wait()
	places := make(chan struct{}, maxClients)
	for {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		conn, err := control.AcceptUnix()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close() // no request has been accepted yet
			}
			return nil
		}
		if err != nil {
			<-places
			s.Log.Warn("relay: a reconciler's connection could not be accepted; retrying", "error", err)
			pause(ctx, acceptPause)
			continue
		}
		clients.Go(func() {
			defer func() { <-places }()
			s.serve(ctx, conn)
		})
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// serve carries out the request of one connection.
func (s *server) serve(ctx context.Context, conn *net.UnixConn) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends every wait for it
	defer stop()
	if conn.SetDeadline(time.Now().Add(requestLimit)) != nil {
		return
	}
	r, err := readRequest(conn)
	if err != nil {
		s.reply(conn, answer{Problem: problemInvalid, Message: err.Error()})
		return
	}
	if r.Op == opAttach {
		s.attach(ctx, conn, r)
		return
	}
	s.reply(conn, s.carryOut(r))
}

// reply sends an answer. It reports whether the client may have received it.
func (s *server) reply(conn *net.UnixConn, a answer) bool {
	if err := conn.SetDeadline(time.Now().Add(requestLimit)); err != nil {
		return false
	}
	if err := writeMessage(conn, a); err != nil {
		s.Log.Debug("a reconciler left before its answer", "error", err)
		return false
	}
	return true
}

func (s *server) carryOut(r request) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return answer{Problem: problemFailed, Message: "the relay is ending"}
	}
	switch r.Op {
	case opAdd:
		return answerTo(s.add(r))
	case opRemove:
		return answerTo(s.remove(r.ID))
	case opEnd:
		return answerTo(s.end(r.ID))
	default:
		ids, err := s.list()
		a := answerTo(err)
		a.Sandboxes = ids
		return a
	}
}

// add creates a sandbox's directory with its files, and listens in it. An existing socket stays.
func (s *server) add(r request) error {
	there := s.endpoints[r.ID] != nil
	if !there && len(s.endpoints) >= maxSandboxes {
		return fmt.Errorf("%w: it serves %d sandboxes", ErrFull, maxSandboxes)
	}
	dir := s.dir(r.ID)
	if err := makeDir(dir, directoryMode); err != nil {
		return err
	}
	for name, content := range map[string][]byte{PasswdFile: r.Accounts.Passwd, GroupFile: r.Accounts.Group} {
		if len(content) == 0 {
			continue
		}
		if err := replaceFile(filepath.Join(dir, name), content, accountsMode); err != nil {
			return err
		}
	}
	if there {
		return nil
	}
	_, err := s.open(r.ID)
	return err
}

// replaceFile replaces a file. A mount of the old file keeps the old content.
func replaceFile(path string, content []byte, mode os.FileMode) error {
	making := path + ".new"
	if err := os.Remove(making); err != nil && !errors.Is(err, fs.ErrNotExist) { // a crash left it
		return err
	}
	err := os.WriteFile(making, content, mode)
	if err == nil {
		err = os.Chmod(making, mode) // regardless of the umask
	}
	if err == nil {
		err = os.Rename(making, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(making))
	}
	return nil
}

// open listens in an existing directory. The caller must hold mu.
func (s *server) open(id string) (*endpoint, error) {
	p, err := newEndpoint(s.dir(id), s.Owner, s.Log.With("sandbox", id))
	if err == nil {
		s.endpoints[id] = p
	}
	return p, err
}

// remove closes a sandbox's connections and deletes its directory. An absent sandbox is success.
func (s *server) remove(id string) error {
	if p := s.endpoints[id]; p != nil {
		p.cut()
		p.close()
		delete(s.endpoints, id)
	}
	return os.RemoveAll(s.dir(id))
}

// end writes the file that ends a sandbox. It needs no connection to the sandbox.
func (s *server) end(id string) error {
	f, err := os.OpenFile(filepath.Join(s.dir(id), EndFile), os.O_CREATE|os.O_WRONLY, endMode)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrUnknown
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(endMode), f.Close())
}

// list returns the sandboxes with a directory, sorted.
func (s *server) list() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.Root, sandboxesDir))
	ids := make([]string, 0, len(entries))
	for _, entry := range entries {
		if sandboxID().MatchString(entry.Name()) {
			ids = append(ids, entry.Name())
		}
	}
	return ids[:min(len(ids), maxSandboxes)], err
}

func (s *server) dir(id string) string { return filepath.Join(s.Root, sandboxesDir, id) }

// lookUp returns a sandbox's endpoint. If an earlier attempt to listen failed, it retries.
func (s *server) lookUp(id string) (*endpoint, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.endpoints[id]; p != nil {
		return p, nil
	}
	if _, err := os.Stat(s.dir(id)); s.closed || errors.Is(err, fs.ErrNotExist) {
		return nil, ErrUnknown
	}
	return s.open(id)
}

// attach connects a client with a parked connection of a sandbox until either closes.
func (s *server) attach(ctx context.Context, client *net.UnixConn, r request) {
	p, err := s.lookUp(r.ID)
	if err != nil {
		s.reply(client, answerTo(err))
		return
	}
	carrier, err := p.take(ctx, r.Wait, client)
	if err != nil {
		s.reply(client, answerTo(err))
		return
	}
	defer p.drop(carrier)
	if !s.reply(client, answer{Lent: r.Lend}) || client.SetDeadline(time.Time{}) != nil {
		return
	}
	if !r.Lend {
		splice(client, carrier)
		return
	}
	held, err := p.hold(carrier)
	if held != nil {
		defer p.drop(held)
	}
	if err == nil {
		err = held.sendTo(client)
	}
	if err != nil {
		s.Log.Debug("a reconciler did not get its connection", "error", err)
		return
	}
	_, _ = io.Copy(io.Discard, client) // until the client closes it
}

// close ends all endpoints. Directories and lent connections stay.
func (s *server) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for p := range maps.Values(s.endpoints) {
		p.close()
	}
	clear(s.endpoints)
}

// listenAt creates a socket for one user. It sets owner and mode first, then atomically replaces the socket of an
// earlier run. So no other user can ever dial it.
func listenAt(path string, owner int) (*net.UnixListener, error) {
	making := path + ".new"
	if err := os.Remove(making); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: making, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	steps := []func() error{
		func() error { return os.Chmod(making, socketMode) },
		func() error { return os.Chown(making, owner, -1) },
		func() error { return os.Rename(making, path) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, errors.Join(err, l.Close(), os.Remove(making))
		}
	}
	return l, nil
}
