package storage

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/micro"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgres"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// measureEvery is the longest time between two readings of the database's clock.
	measureEvery = 10 * time.Second
	// askTimeout limits one small query.
	askTimeout = 5 * time.Second
	// listenFor is how long to listen on a connection before testing it.
	listenFor = 30 * time.Second
	// The pauses before a lost connection is opened again.
	firstPause, longestPause = 100 * time.Millisecond, 5 * time.Second
)

// startListening starts watching for commits of other processes.
func (s *Store) startListening(ctx context.Context, p *postgresDatabase, o Options) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	last, at, err := s.look(ctx)
	if err != nil {
		return Error("opening the ledger", err)
	}
	p.clock.set(at)
	var conn *pgx.Conn
	if !o.NoListen {
		if conn, err = p.listen(ctx); err != nil {
			return Error("listening for commits", err)
		}
	}
	watching, stop := context.WithCancel(context.Background())
	s.wg.Go(func() { defer stop(); <-s.stop })
	s.wg.Go(func() { s.pollCommits(watching, p, o.Poll, last) })
	if conn != nil {
		s.wg.Go(func() { s.listenForCommits(watching, p, conn) })
	}
	return nil
}

// look returns a value that changes with every commit on the server, and the server's clock.
func (s *Store) look(ctx context.Context) (version string, at micro.Time, err error) {
	pool, err := s.reads.DB()
	if err != nil {
		return "", 0, err
	}
	err = pool.QueryRowContext(ctx, "SELECT pg_current_snapshot()::text, "+serverMoment).Scan(&version, &at)
	return version, at, err
}

const serverMoment = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

// measure reads the database's clock.
func (p *postgresDatabase) measure(ctx context.Context, conn *pgx.Conn) error {
	var at int64
	if err := conn.QueryRow(ctx, "SELECT "+serverMoment).Scan(&at); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "reading the database's clock: %w", err)
	}
	p.clock.set(micro.Time(at))
	return nil
}

// pollCommits finds commits whose notification did not arrive, and keeps the clock measured. It also sees
// commits on other ledgers of the server, which is harmless.
func (s *Store) pollCommits(ctx context.Context, p *postgresDatabase, poll time.Duration, last string) {
	pace := poll
	if p.isClock {
		pace = min(poll, measureEvery)
	}
	tick := time.NewTicker(pace)
	defer tick.Stop()
	looked := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		bounded, cancel := context.WithTimeout(ctx, askTimeout)
		version, at, err := s.look(bounded)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				s.log.Warn("ledger: watching for other processes' commits failed", "error", err)
			}
			continue
		}
		p.clock.set(at)
		if time.Since(looked) < poll-pace/2 {
			continue
		}
		looked = time.Now()
		if version != last {
			s.notify(false)
		}
		last = version
	}
}

// openKey is the advisory lock that all listeners on a ledger share.
const openKey = "hashtextextended('sandbox ledger open ' || current_schema(), 0)"

// listen returns a connection that receives notifications of commits.
func (p *postgresDatabase) listen(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, p.config)
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, "LISTEN "+pgx.Identifier{p.channel}.Sanitize())
	if err == nil {
		_, err = conn.Exec(ctx, "SELECT pg_advisory_lock_shared("+openKey+")")
	}
	if err == nil {
		err = p.show(ctx, conn)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return conn, nil
}

// listenForCommits forwards notifications to Changed, and reconnects when the connection is lost. One call
// covers all notifications missed meanwhile.
func (s *Store) listenForCommits(ctx context.Context, p *postgresDatabase, conn *pgx.Conn) {
	for {
		err := s.passOn(ctx, p, conn)
		closing, cancel := context.WithTimeout(context.Background(), askTimeout)
		_ = conn.Close(closing) // it is lost or no longer needed
		cancel()
		if ctx.Err() != nil {
			return
		}
		s.log.Warn("ledger: lost the notifications of other processes' commits; reconnecting", "error", err)
		if conn = p.listenAgain(ctx); conn == nil {
			return
		}
		s.notify(false)
	}
}

// listenAgain retries until it is connected. It returns nil once ctx has ended.
func (p *postgresDatabase) listenAgain(ctx context.Context) *pgx.Conn {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		bounded, cancel := context.WithTimeout(ctx, postgres.ConnectTimeout)
		conn, err := p.listen(bounded)
		cancel()
		if err == nil {
			return conn
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// passOn forwards notifications, and returns when the connection no longer answers. The writer announces this process's
// own commits.
func (s *Store) passOn(ctx context.Context, p *postgresDatabase, conn *pgx.Conn) error {
	for {
		bounded, cancel := context.WithTimeout(ctx, listenFor)
		n, err := conn.WaitForNotification(bounded)
		silent := bounded.Err() != nil
		cancel()
		switch {
		case err == nil:
			if n.PID != p.writer.Load() {
				s.notify(false)
			}
			continue
		case ctx.Err() != nil || !silent:
			return err
		}
		bounded, cancel = context.WithTimeout(ctx, askTimeout)
		err = conn.Ping(bounded)
		cancel()
		if err != nil {
			return err
		}
	}
}
