// Package postgrestest runs real PostgreSQL servers for tests, with the machine's binaries.
package postgrestest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// testingM is the part of testing.M that M needs.
type testingM interface{ Run() int }

// M returns an m whose Run stops the server of New, if any, after all tests.
func M(m testingM) testingM { return stopping{m} }

type stopping struct{ testingM }

func (s stopping) Run() int {
	defer shared.stop()
	return s.testingM.Run()
}

// shared is the server of New, one per test binary.
var shared sharedServer

type sharedServer struct {
	once   sync.Once
	server *Server
	err    error
}

func (s *sharedServer) start() (*Server, error) {
	s.once.Do(func() { s.server, s.err = newServer() })
	return s.server, s.err
}

func (s *sharedServer) stop() {
	if s.server != nil {
		s.server.remove()
	}
}

// New returns the URL of a new schema, for a new ledger, on a server that all tests of the binary share. The
// package's TestMain must run its tests through M.
func New(t testing.TB) string {
	t.Helper()
	s, err := shared.start()
	if err != nil {
		t.Fatal(err)
	}
	return s.URL(t)
}

// Start starts a server for one test, which may stop it.
func Start(t testing.TB) *Server {
	t.Helper()
	s, err := newServer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.remove)
	return s
}

// URL returns the URL of a new schema on the server.
func (s *Server) URL(t testing.TB) string {
	t.Helper()
	schema := "t_" + rand.Text()
	Exec(t, s.url("").String(), "CREATE SCHEMA "+pgx.Identifier{schema}.Sanitize())
	return s.url(schema).String()
}

func (s *Server) url(schema string) *url.URL {
	u := &url.URL{
		Scheme: "postgres",
		User:   url.UserPassword(superuser, s.password),
		Host:   net.JoinHostPort(s.host, s.port),
		Path:   "/postgres",
	}
	if schema != "" {
		u.RawQuery = url.Values{"search_path": {`"` + schema + `"`}}.Encode()
	}
	return u
}

// Exec runs a statement directly on the database.
func Exec(t testing.TB, url, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, statement); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", statement, err))
	}
}

// StopImmediately stops the server like `pg_ctl stop -m immediate`: like a crash, with nothing written that
// was not yet on disk. Start restarts it at the same URL.
func (s *Server) StopImmediately(t testing.TB) {
	t.Helper()
	s.kill()
}

// Start restarts the server.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
}
