package storage

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
	"gorm.io/gorm"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgres"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// postgresPoll is the interval for finding others' commits if notifications do not arrive.
	postgresPoll = 5 * time.Second
	// answerTimeout limits a transaction on the client's side, in case the server does not answer at all.
	answerTimeout = 75 * time.Second
	// migrateTimeout limits the wait for another replica's migration, and this one's.
	migrateTimeout = 5 * time.Minute
)

// openPostgres opens a ledger that several reconcilers share.
func openPostgres(ctx context.Context, u *url.URL, o Options) (*Store, error) {
	config, err := postgres.Config(u)
	if err != nil {
		return nil, err
	}
	if o.Poll == 0 {
		o.Poll = postgresPoll
	}
	p := &postgresDatabase{config: config, isClock: o.Now == nil}
	if p.isClock {
		o.Now = p.clock.Now
	}
	id, err := migratePostgres(ctx, p, o)
	if err != nil {
		return nil, err
	}
	p.channel = id
	writes, err := postgres.Dial(config, postgres.WriterSettings, 1)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "opening the ledger: %w", err)
	}
	reads, err := postgres.Dial(config, postgres.ReaderSettings, readers)
	if err != nil {
		return nil, errors.Join(sandbox.Errorf(sandbox.Unavailable, "opening the ledger: %w", err), closeDB(writes))
	}
	s := newStore(p, writes, reads, o)
	s.id = id
	if !o.NoListen {
		p.process = sandbox.RandomIDs(sandbox.LedgerIDLength)
		s.process = p.process
	}
	if err := s.startListening(ctx, p, o); err != nil {
		return nil, errors.Join(err, closeDB(reads), closeDB(writes))
	}
	return s.startWriting(ctx)
}

// migratePostgres upgrades the schema and returns the ledger's id. A lock serialises replicas that start
// together.
func migratePostgres(ctx context.Context, p *postgresDatabase, o Options) (id string, err error) {
	ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, p.config)
	if err != nil {
		return "", postgres.ConnectError(err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }() // releases the lock
	if err := postgres.CheckServer(ctx, conn); err != nil {
		return "", err
	}
	if _, err := conn.Exec(ctx,
		"SELECT pg_advisory_lock(hashtextextended('sandbox ledger ' || current_schema(), 0))"); err != nil {
		return "", sandbox.Errorf(sandbox.Unavailable, "locking the ledger for its migration: %w", err)
	}
	if err := p.measure(ctx, conn); err != nil {
		return "", err
	}
	db, err := postgres.Dial(p.config, nil, 2)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, closeDB(db)) }()
	pool, err := db.DB()
	if err != nil {
		return "", err
	}
	return migrate(ctx, goose.DialectPostgres, pool, db, o)
}

// postgresDatabase holds what is specific to PostgreSQL.
type postgresDatabase struct {
	config  *pgx.ConnConfig
	channel string // of announcements: the ledger's id
	process string // "" if no session listens
	clock   serverTime
	isClock bool          // no other clock was given
	writer  atomic.Uint32 // the server's process of this process's latest commit
}

func (*postgresDatabase) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, answerTimeout)
}

func (p *postgresDatabase) begin(db *gorm.DB) (begun, error) {
	var b begun
	// The server announces the commit to the other processes once it is done.
	const query = "SELECT moment, oldest_program, pg_backend_pid() AS server_process FROM begin_commit(), pg_notify(?, '')"
	if err := db.Raw(query, p.channel).Scan(&b).Error; err != nil {
		return b, err
	}
	p.clock.set(b.Moment)
	p.writer.Store(b.ServerProcess)
	if !p.isClock {
		b.Moment = 0
	}
	return b, nil
}

func (*postgresDatabase) committing(err error) (unknown bool, _ error) {
	var refused *pgconn.PgError
	if errors.As(err, &refused) || errors.Is(err, pgx.ErrTxCommitRollback) {
		return false, Error("committing to the ledger", err)
	}
	return true, sandbox.Errorf(sandbox.Unavailable, "committing to the ledger: the server's answer was lost, so the "+
		"change may or may not be stored: %w (check, or retry)", err)
}

// intact does nothing: the server manages its files.
func (*postgresDatabase) intact() error { return nil }

// fault uses the codes of https://www.postgresql.org/docs/current/errcodes-appendix.html.
func (*postgresDatabase) fault(err error) Fault {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return FaultNone
	}
	switch refused.Code {
	case "53100": // disk_full
		return FaultFull
	case "25006": // read_only_sql_transaction
		return FaultReadOnly
	case "XX001", "XX002": // data_corrupted, index_corrupted
		return FaultDamaged
	}
	return FaultNone
}

// snapshot makes all reads of a transaction consistent.
func (*postgresDatabase) snapshot() *sql.TxOptions {
	return &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
}
