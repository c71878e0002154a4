package ledger

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// postgresPoll is the interval for finding others' commits if notifications do not arrive.
	postgresPoll = 5 * time.Second
	// connectTimeout limits connecting, unless the URL sets connect_timeout.
	connectTimeout = 5 * time.Second
	// answerTimeout limits a transaction on the client's side, in case the server does not answer at all.
	answerTimeout = 75 * time.Second
	// migrateTimeout limits the wait for another replica's migration, and this one's.
	migrateTimeout = 5 * time.Minute
	// connectionLife allows connections to move to another server behind the same name.
	connectionLife = time.Hour
)

// writerSettings are the settings of the writing connection. The server cuts off a replica that freezes while
// it holds the write lock, sooner than another replica takes over its work.
var writerSettings = map[string]string{
	"idle_in_transaction_session_timeout": "5s",
	"lock_timeout":                        "15s",
	"statement_timeout":                   "60s",
}

var readerSettings = map[string]string{
	"idle_in_transaction_session_timeout": "60s",
	"statement_timeout":                   "60s",
	"default_transaction_read_only":       "on",
}

// openPostgres opens a ledger that several reconcilers share.
func openPostgres(ctx context.Context, u *url.URL, o Options) (*Store, error) {
	config, err := postgresConfig(u)
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
	writes, err := dialPostgres(config, writerSettings, 1)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "opening the ledger: %w", err)
	}
	reads, err := dialPostgres(config, readerSettings, readers)
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

// postgresAt is postgresConfig for an unparsed URL.
func postgresAt(rawURL string) (*pgx.ConnConfig, error) {
	u, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	return postgresConfig(u)
}

func postgresConfig(u *url.URL) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(u.String())
	if err != nil {
		var parse *pgconn.ParseConfigError
		if errors.As(err, &parse) {
			parse.ConnString = RedactURL(u.String())
		}
		return nil, sandbox.Errorf(sandbox.Invalid, "ledger URL: %w; write it as postgres://user@host/database", err)
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "terraform-provider-sandbox"
	}
	if config.RuntimeParams["synchronous_commit"] == "" { // regardless of the server's default
		config.RuntimeParams["synchronous_commit"] = "on"
	}
	return config, nil
}

// dialPostgres creates a pool. pgx caches prepared statements per connection, so GORM must not: its own would
// outlive their connection.
func dialPostgres(config *pgx.ConnConfig, settings map[string]string, connections int) (*gorm.DB, error) {
	config = config.Copy()
	for name, value := range settings {
		config.RuntimeParams[name] = value
	}
	pool := stdlib.OpenDB(*config)
	pool.SetMaxOpenConns(connections)
	pool.SetMaxIdleConns(connections)
	pool.SetConnMaxLifetime(connectionLife)
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: pool}), &gorm.Config{
		SkipDefaultTransaction: true,
		TranslateError:         true,
		// With SELECT *, a column that a newer program adds would break prepared statements.
		QueryFields:    true,
		NamingStrategy: naming{},
		Logger:         logger.Discard,
	})
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return db, nil
}

// migratePostgres upgrades the schema and returns the ledger's id. A lock serialises replicas that start
// together.
func migratePostgres(ctx context.Context, p *postgresDatabase, o Options) (id string, err error) {
	ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, p.config)
	if err != nil {
		return "", connecting(err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }() // releases the lock
	if err := checkServer(ctx, conn); err != nil {
		return "", err
	}
	if _, err := conn.Exec(ctx,
		"SELECT pg_advisory_lock(hashtextextended('sandbox ledger ' || current_schema(), 0))"); err != nil {
		return "", sandbox.Errorf(sandbox.Unavailable, "locking the ledger for its migration: %w", err)
	}
	if err := p.measure(ctx, conn); err != nil {
		return "", err
	}
	db, err := dialPostgres(p.config, nil, 2)
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

// checkServer rejects servers that only look like PostgreSQL, or lack a required feature.
func checkServer(ctx context.Context, conn *pgx.Conn) error {
	var version, encoding string
	var number int
	var schema *string
	err := conn.QueryRow(ctx, "SELECT version(), current_setting('server_version_num')::int, "+
		"current_setting('server_encoding'), current_schema()::text").
		Scan(&version, &number, &encoding, &schema)
	switch {
	case err != nil:
		return sandbox.Errorf(sandbox.Unavailable, "reading the version of the ledger's server: %w", err)
	case number < 13_00_00 || len(version) < 11 || version[:11] != "PostgreSQL ":
		return sandbox.Errorf(sandbox.Invalid, "the ledger's server is %s, but PostgreSQL 13 or newer is required", version)
	case encoding != "UTF8":
		return sandbox.Errorf(sandbox.Invalid, "the ledger's database has the encoding %s, but UTF8 is required: create "+
			"another one with ENCODING 'UTF8' TEMPLATE template0", encoding)
	case schema == nil:
		return sandbox.Errorf(sandbox.Invalid, "the ledger's database has no schema for search_path %q: create it first",
			conn.Config().RuntimeParams["search_path"])
	}
	return nil
}

// connecting gives a connection error a code. pgx keeps passwords out of its texts.
func connecting(err error) error {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		switch refused.Code {
		case "28000", "28P01": // invalid authorization, invalid password
			return sandbox.Errorf(sandbox.Invalid, "opening the ledger: the server rejected the user or the password: %w",
				err)
		case "3D000": // invalid catalog name
			return sandbox.Errorf(sandbox.Invalid, "opening the ledger: the server has no such database: %w; create it first",
				err)
		}
	}
	return sandbox.Errorf(sandbox.Unavailable, "opening the ledger: %w", err)
}

// isUnstorableText reports whether PostgreSQL rejected a text that SQLite would store.
func isUnstorableText(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == "22021" // character_not_in_repertoire
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
	// The server announces the commit to the other processes once it is one.
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

func (*postgresDatabase) committing(err error) error {
	var refused *pgconn.PgError
	if errors.As(err, &refused) || errors.Is(err, pgx.ErrTxCommitRollback) {
		return unavailable("committing to the ledger", err)
	}
	return sandbox.Errorf(sandbox.Unavailable, "committing to the ledger: the server's answer was lost, so the "+
		"change may or may not be stored: %w (check, or retry)", err)
}

// intact: the server manages its files.
func (*postgresDatabase) intact() error { return nil }

// fault goes by the codes of https://www.postgresql.org/docs/current/errcodes-appendix.html.
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
