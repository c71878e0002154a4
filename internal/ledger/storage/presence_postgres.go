package storage

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// confirmAfter is the time after which a process with a missing session is checked again. A live one has
// extended its claims by then.
const confirmAfter = 2500 * time.Millisecond

// presenceKey names the advisory lock of a process.
func (p *postgresDatabase) presenceKey(process string) string {
	return "sandbox ledger process " + p.channel + " " + process
}

// show makes a session prove that this process lives.
func (p *postgresDatabase) show(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "SELECT pg_advisory_lock_shared(hashtextextended($1, 0))", p.presenceKey(p.process))
	return err
}

// ended implements database. A missing session may just have been lost, so it checks twice.
func (p *postgresDatabase) ended(ctx context.Context, processes []string) (dead []string, forget func(), err error) {
	forget = func() {}
	for look := range 2 {
		if len(processes) == 0 {
			return nil, forget, nil
		}
		if look > 0 {
			select {
			case <-time.After(confirmAfter):
			case <-ctx.Done():
				return nil, forget, Error("looking for processes", ctx.Err())
			}
		}
		if processes, err = p.missing(ctx, processes); err != nil {
			return nil, forget, Error("looking for processes", err)
		}
	}
	return processes, forget, nil
}

// missing returns the processes without a session.
func (p *postgresDatabase) missing(ctx context.Context, processes []string) (missing []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, p.config)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }() // releases the locks
	for _, process := range processes {
		var free bool
		if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock(hashtextextended($1, 0))", p.presenceKey(process)).
			Scan(&free); err != nil {
			return nil, err
		}
		if free {
			missing = append(missing, process)
		}
	}
	return missing, nil
}
