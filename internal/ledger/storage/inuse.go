package storage

import (
	"context"
	"errors"
	"net/url"

	"github.com/jackc/pgx/v5"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/location"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgres"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/sqlite"
)

// InUse reports whether any program has the ledger at a URL open, if that can be known: on PostgreSQL not for a program
// behind a pooler that does not forward notifications. Errors: as Open.
func InUse(ctx context.Context, rawURL string) (bool, error) {
	u, err := location.Parse(rawURL)
	if err != nil {
		return false, err
	}
	if u.Scheme == "sqlite" {
		return isOpenSQLite(ctx, u)
	}
	return isOpenPostgres(ctx, u)
}

// isOpenSQLite reports whether any program has the file open: with the write-ahead log, each holds a lock on
// it, and a reader in exclusive mode must be alone.
func isOpenSQLite(ctx context.Context, u *url.URL) (bool, error) {
	db, err := sqlite.OpenFile(u.Path, url.Values{"_pragma": {"locking_mode(EXCLUSIVE)"}})
	if err == nil {
		_, err = db.ExecContext(ctx, "SELECT count(*) FROM ledgers")
		err = errors.Join(err, db.Close())
	}
	if sqlite.IsBusy(err) {
		return true, nil
	}
	return false, Error("checking whether the ledger is in use", err)
}

// isOpenPostgres reports whether any program has the ledger open and listens on it.
func isOpenPostgres(ctx context.Context, u *url.URL) (open bool, err error) {
	config, err := postgres.Config(u)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return false, postgres.ConnectError(err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }() // releases the lock
	var alone bool
	err = conn.QueryRow(ctx, "SELECT pg_try_advisory_lock("+openKey+")").Scan(&alone)
	return !alone, Error("locking the ledger", err)
}
