package postgrestest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testaddress"
)

const (
	superuser = "postgres"
	// startTimeout is how long a server may take to answer, including crash recovery.
	startTimeout = 60 * time.Second
)

// Server is a PostgreSQL server that syncs to disk, like one in production.
type Server struct {
	bin, dir string
	password string
	host     string
	port     string
	as       *syscall.Credential // nil for the current user

	process *os.Process
	ended   chan struct{} // closed when the process has ended
}

func newServer() (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	as, err := unprivileged()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "postgrestest")
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, dir: dir, password: rand.Text(), as: as}
	if err := errors.Join(s.initialize(), s.chooseAddress()); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := s.start(); err != nil {
		s.remove()
		return nil, err
	}
	return s, nil
}

// binaries returns the directory of initdb and postgres, from PATH or Debian's location.
func binaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), nil
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", errors.New("there is no initdb in PATH or /usr/lib/postgresql: run scripts/packages postgresql")
	}
	slices.Sort(found)
	return filepath.Dir(found[len(found)-1]), nil
}

// unprivileged returns the user for the server: PostgreSQL refuses to run as root.
func unprivileged() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return nil, err
		}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) initialize() error {
	password := filepath.Join(s.dir, "password")
	if err := os.WriteFile(password, []byte(s.password+"\n"), 0o600); err != nil {
		return err
	}
	if s.as != nil {
		for _, path := range []string{s.dir, password} {
			if err := os.Chown(path, int(s.as.Uid), int(s.as.Gid)); err != nil {
				return err
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	// A password in clear text, on this machine: SCRAM takes 30 ms for each connection under the race detector.
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"), "--pgdata="+s.data(), "--username="+superuser,
		"--pwfile="+password, "--auth=password", "--encoding=UTF8", "--no-locale", "--no-sync")
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

func (s *Server) chooseAddress() (err error) {
	address, err := testaddress.Free()
	if err != nil {
		return err
	}
	s.host, s.port, err = net.SplitHostPort(address)
	return err
}

// start starts the server and waits until it answers. It does not flush what it writes: that protects from a crash of
// the machine alone, and no test has one. The kernel kills the server when the thread that
// started it ends, so a thread is kept for it. So the server ends with this process in every case.
func (s *Server) start() error {
	log := new(bytes.Buffer)
	cmd := exec.Command(filepath.Join(s.bin, "postgres"), "-D", s.data(), "-p", s.port,
		"-c", "listen_addresses="+s.host, "-c", "unix_socket_directories="+s.dir, "-c", "max_connections=300",
		"-c", "shared_buffers=32MB", "-c", "fsync=off", "-c", "full_page_writes=off")
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as, Pdeathsig: syscall.SIGQUIT}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(ended)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it was asked to end
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	s.process, s.ended = cmd.Process, ended
	return s.awaitAnswer(log)
}

func (s *Server) awaitAnswer(log *bytes.Buffer) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.url("").String())
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.ended:
			return fmt.Errorf("postgres ended: %s", log)
		case <-ctx.Done():
			return fmt.Errorf("postgres does not answer: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// kill ends the server immediately.
func (s *Server) kill() {
	_ = s.process.Signal(syscall.SIGQUIT) // fails only if it has ended
	<-s.ended
}

func (s *Server) remove() {
	if s.process != nil {
		s.kill()
	}
	_ = os.RemoveAll(s.dir) // a temporary directory
}
