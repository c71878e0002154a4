package storage_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/deliveries"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/ledgertest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestOthersCommitsAreAnnouncedOnPostgreSQL(t *testing.T) {
	t.Parallel()
	at := postgrestest.New(t)
	a, b := ledgertest.Open(t, at, ledger.Options{Poll: time.Hour}), ledgertest.Open(t, at, ledger.Options{Poll: time.Hour})
	changed := a.Changed()
	ledgertest.MakeEnvironment(t, b, "e")
	committed := time.Now()
	select {
	case <-changed:
		t.Logf("noticed %s after the commit", time.Since(committed))
	case <-time.After(5 * time.Second):
		t.Error("another's commit was not announced")
	}
}

func TestOthersCommitsAreFoundWithoutAnnouncements(t *testing.T) {
	t.Parallel()
	at := postgrestest.New(t)
	a, b := ledgertest.Open(t, at, ledger.Options{Poll: 20 * time.Millisecond, NoListen: true}), ledgertest.Open(t,
		at, ledger.Options{})
	changed := a.Changed()
	ledgertest.MakeEnvironment(t, b, "e")
	select {
	case <-changed:
	case <-time.After(10 * time.Second):
		t.Error("another's commit was not found")
	}
}

func TestLedgersInSchemasOfOneDatabaseAreApart(t *testing.T) {
	t.Parallel()
	a, b := ledgertest.Open(t, postgrestest.New(t), ledger.Options{}), ledgertest.Open(t, postgrestest.New(t), ledger.Options{})
	ledgertest.MakeEnvironment(t, a, "e")
	err := b.Read(t.Context(), func(tx *ledger.Tx) error {
		e, err := tx.Environment("e")
		if e != nil {
			t.Error("it is in the other ledger")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestAFrozenWriterIsCutOff stops a replica in the middle of a commit, like a suspended machine. Another replica must
// be able to write before its own claims count as dead.
func TestAFrozenWriterIsCutOff(t *testing.T) {
	t.Parallel()
	at := postgrestest.New(t)
	frozen, other := ledgertest.Open(t, at, ledger.Options{}), ledgertest.Open(t, at, ledger.Options{})
	holding, thaw, outcome := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		outcome <- frozen.Write(t.Context(), func(tx *ledger.Tx) error {
			err := ledgertest.Environment(tx, "of the frozen")
			close(holding)
			<-thaw
			return err
		})
	}()
	<-holding
	began := time.Now()
	ledgertest.MakeEnvironment(t, other, "of the other")
	waited := time.Since(began)
	t.Logf("the other waited %s", waited)
	if waited > 8*time.Second { // lifecycle.ClaimTTL
		t.Errorf("the other waited %s", waited)
	}
	close(thaw)
	if err := <-outcome; sandbox.CodeOf(err) != sandbox.Unavailable {
		t.Errorf("the frozen write returned %v", err)
	}
	ledgertest.MakeEnvironment(t, frozen, "of the frozen") // the first one was not stored; it has a new connection
}

func TestAProgramOlderThanTheLedgerStops(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]string{"SQLite": ledgertest.SQLiteURL(t), "PostgreSQL": postgrestest.New(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := func(statement string) {
				if path, ok := strings.CutPrefix(at, "sqlite://"); ok {
					ledgertest.ExecSQL(t, path, statement)
				} else {
					postgrestest.Exec(t, at, statement)
				}
			}
			running := ledgertest.Open(t, at, ledger.Options{})
			// A newer program has added a column that this one need not know.
			set("ALTER TABLE environments ADD COLUMN novelty TEXT NOT NULL DEFAULT ''")
			ledgertest.MakeEnvironment(t, running, "e")
			ledgertest.MakeEnvironment(t, ledgertest.Open(t, at, ledger.Options{}), "f")
			// A newer program has changed the meaning of data.
			set("UPDATE ledgers SET min_reader = 99")
			err := running.Write(t.Context(), func(tx *ledger.Tx) error { return ledgertest.Environment(tx, "g") })
			if sandbox.CodeOf(err) != sandbox.Conflict || !strings.Contains(err.Error(), "upgrade") {
				t.Errorf("while it runs: %v", err)
			}
			if _, err := ledger.Open(t.Context(), at, ledger.Options{}); sandbox.CodeOf(err) != sandbox.Conflict ||
				!strings.Contains(err.Error(), "upgrade") {
				t.Errorf("as it starts: %v", err)
			}
		})
	}
}

func TestErrorsOfPostgreSQLNeverHoldThePassword(t *testing.T) {
	t.Parallel()
	good := postgrestest.New(t)
	change := func(f func(u *url.URL)) string {
		u, err := url.Parse(good)
		if err != nil {
			t.Fatal(err)
		}
		f(u)
		return u.String()
	}
	const secret = "s3cret"
	for name, c := range map[string]struct {
		url  string
		code sandbox.Code
		says string
	}{
		"no server": {"postgres://u:" + secret + "@127.0.0.1:1/db", sandbox.Unavailable, "127.0.0.1:1"},
		"wrong password": {change(func(u *url.URL) { u.User = url.UserPassword("postgres", secret) }),
			sandbox.Invalid, "password"},
		"missing database": {change(func(u *url.URL) { u.Path = "/nowhere" }), sandbox.Invalid, "create it first"},
		"missing schema": {change(func(u *url.URL) { u.RawQuery = "search_path=nowhere" }),
			sandbox.Invalid, "create it first"},
		"not a port": {"postgres://u:" + secret + "@host:port/db", sandbox.Invalid, "port"},
		"not an option": {"postgres://u:" + secret + "@host/db?sslmode=odd&password=" + secret,
			sandbox.Invalid, "sslmode"},
		"of another program": {"mysql://u:" + secret + "@host/db", sandbox.Invalid, "postgres://"},
	} {
		_, err := ledger.Open(t.Context(), c.url, ledger.Options{})
		if sandbox.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v (%s)", name, err, sandbox.CodeOf(err))
		}
		password, _ := mustParse(t, good).User.Password()
		if err != nil && (strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), password)) {
			t.Errorf("%s: the error holds the password: %v", name, err)
		}
	}
}

func mustParse(t *testing.T, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestTextThatPostgreSQLCannotStoreIsTheCallersFault(t *testing.T) {
	t.Parallel()
	s := ledgertest.Open(t, postgrestest.New(t), ledger.Options{})
	err := s.Write(t.Context(), func(tx *ledger.Tx) error {
		_, err := deliveries.In(tx).Create([]deliveries.Delivery{{ID: "a\x00b", Body: []byte{}, Status: sandbox.DeliveryUnmatched}})
		return err
	})
	if sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("%v", err)
	}
}
