package ledger

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
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
	// postgresPoll finds the commits of others should their announcements not arrive.
	postgresPoll = 5 * time.Second
	// connectTimeout bounds connecting, unless the URL's connect_timeout does.
	connectTimeout = 5 * time.Second
	// answerTimeout bounds a transaction from this side, when the server does not answer at all.
	answerTimeout = 75 * time.Second
	// migrateTimeout bounds waiting for another replica's migration, and one's own.
	migrateTimeout = 5 * time.Minute
	// connectionLife lets connections move to another server behind the same name.
	connectionLife = time.Hour
)

// writerSettings are of the connection that writes. A replica that freezes while it holds the right
// to write is cut off by the server, in less time than another needs to take over its work.
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

// postgresAt is postgresConfig of a URL that is not parsed yet.
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
	if config.RuntimeParams["synchronous_commit"] == "" { // whatever the server's default is
		config.RuntimeParams["synchronous_commit"] = "on"
	}
	return config, nil
}

// dialPostgres makes a pool. pgx keeps prepared statements per connection, so GORM does not: its own
// would outlive the connection they were prepared on.
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
		QueryFields: true,
		Logger:      logger.Discard,
	})
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return db, nil
}

// migratePostgres brings the schema up to date and returns the ledger's id. A lock keeps replicas
// that start together apart.
func migratePostgres(ctx context.Context, p *postgresDatabase, o Options) (id string, err error) {
	ctx, cancel := context.WithTimeout(ctx, migrateTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, p.config)
	if err != nil {
		return "", connecting(err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }() // frees the lock
	if err := checkServer(ctx, conn); err != nil {
		return "", err
	}
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended('sandbox ledger ' || current_schema(), 0))"); err != nil {
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

// checkServer refuses what only looks like PostgreSQL, or lacks what is needed.
func checkServer(ctx context.Context, conn *pgx.Conn) error {
	var version, encoding string
	var number int
	var schema *string
	err := conn.QueryRow(ctx, "SELECT version(), current_setting('server_version_num')::int, current_setting('server_encoding'), current_schema()::text").
		Scan(&version, &number, &encoding, &schema)
	switch {
	case err != nil:
		return sandbox.Errorf(sandbox.Unavailable, "asking the ledger's server for its version: %w", err)
	case number < 13_00_00 || len(version) < 11 || version[:11] != "PostgreSQL ":
		return sandbox.Errorf(sandbox.Invalid, "the ledger's server is %s, and PostgreSQL 13 or newer is needed", version)
	case encoding != "UTF8":
		return sandbox.Errorf(sandbox.Invalid, "the ledger's database has the encoding %s, and UTF8 is needed: create another with ENCODING 'UTF8' TEMPLATE template0", encoding)
	case schema == nil:
		return sandbox.Errorf(sandbox.Invalid, "the ledger's database has no schema of its search_path %q: create it first", conn.Config().RuntimeParams["search_path"])
	}
	return nil
}

// connecting gives an error of connecting its code. pgx keeps passwords out of its texts.
func connecting(err error) error {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		switch refused.Code {
		case "28000", "28P01": // invalid authorization, invalid password
			return sandbox.Errorf(sandbox.Invalid, "opening the ledger: the server does not accept the user or the password: %w", err)
		case "3D000": // invalid catalog name
			return sandbox.Errorf(sandbox.Invalid, "opening the ledger: the server has no such database: %w; create it first", err)
		}
	}
	return sandbox.Errorf(sandbox.Unavailable, "opening the ledger: %w", err)
}

// isUnstorableText reports whether PostgreSQL refused a text that SQLite would store.
func isUnstorableText(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == "22021" // character_not_in_repertoire
}

// postgresDatabase is what is particular to PostgreSQL.
type postgresDatabase struct {
	config  *pgx.ConnConfig
	channel string // of announcements: the ledger's id
	process string // "" when no session listens
	clock   serverTime
	isClock bool // no other clock was given
}

func (*postgresDatabase) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, answerTimeout)
}

func (p *postgresDatabase) begin(db *gorm.DB) (begun, error) {
	var b begun
	// The server announces the commit to the other processes once it is one.
	if err := db.Raw("SELECT moment, oldest_program FROM begin_commit(), pg_notify(?, '')", p.channel).Scan(&b).Error; err != nil {
		return b, err
	}
	p.clock.set(b.Moment)
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
	return sandbox.Errorf(sandbox.Unavailable, "committing to the ledger: the server's answer was lost, so that the change may or may not be stored: %w (look, or retry)", err)
}

// intact: the server keeps its files.
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

// snapshot has all that a transaction reads be of one moment.
func (*postgresDatabase) snapshot() *sql.TxOptions {
	return &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
}
