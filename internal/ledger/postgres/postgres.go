// Package postgres is PostgreSQL for the ledger: its configuration, connections, and what its errors mean.
package postgres

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/location"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/migrations"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const (
	// ConnectTimeout limits connecting, unless the URL sets connect_timeout.
	ConnectTimeout = 5 * time.Second
	// connectionLife allows connections to move to another server behind the same name.
	connectionLife = time.Hour
)

// WriterSettings are the settings of the writing connection. The server cuts off a replica that freezes while
// it holds the write lock, sooner than another replica takes over its work.
var WriterSettings = map[string]string{
	"idle_in_transaction_session_timeout": "5s",
	"lock_timeout":                        "15s",
	"statement_timeout":                   "60s",
}

// ReaderSettings are the settings of connections that only read.
var ReaderSettings = map[string]string{
	"idle_in_transaction_session_timeout": "60s",
	"statement_timeout":                   "60s",
	"default_transaction_read_only":       "on",
}

// ConfigAt is Config for an unparsed URL.
func ConfigAt(rawURL string) (*pgx.ConnConfig, error) {
	u, err := location.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	return Config(u)
}

// Config returns the configuration of connections to a ledger. Unless the URL sets them, it has a limit of 5 s for
// connecting and synchronous commits. Errors: Invalid, without the password.
func Config(u *url.URL) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(u.String())
	if err != nil {
		var parse *pgconn.ParseConfigError
		if errors.As(err, &parse) {
			parse.ConnString = location.Redact(u.String())
		}
		return nil, sandbox.Errorf(sandbox.Invalid, "ledger URL: %w; write it as postgres://user@host/database", err)
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = ConnectTimeout
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "terraform-provider-sandbox"
	}
	if config.RuntimeParams["synchronous_commit"] == "" { // regardless of the server's default
		config.RuntimeParams["synchronous_commit"] = "on"
	}
	return config, nil
}

// Dial creates a pool of connections with the given server settings. pgx caches prepared statements per connection, so
// GORM must not: its own would outlive their connection.
func Dial(config *pgx.ConnConfig, settings map[string]string, connections int) (*gorm.DB, error) {
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
		NamingStrategy: migrations.Naming{},
		Logger:         logger.Discard,
	})
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return db, nil
}

// CheckServer rejects servers that only look like PostgreSQL, or lack a required feature. Errors: Invalid, Unavailable.
func CheckServer(ctx context.Context, conn *pgx.Conn) error {
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

// ConnectError gives a connection error a code: Invalid for a wrong user, password or database, else Unavailable. pgx
// keeps passwords out of its texts.
func ConnectError(err error) error {
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

// IsUnstorableText reports whether PostgreSQL rejected a text that SQLite would store.
func IsUnstorableText(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == "22021" // character_not_in_repertoire
}
