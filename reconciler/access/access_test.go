package access_test

import (
	"context"
	"encoding/hex"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/tokens"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/access"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(postgrestest.M(m)) }

// world is a ledger with a clock that only the test advances.
type world struct {
	*testing.T
	url string

	mu  sync.Mutex // guards now
	now time.Time
}

func (w *world) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// onBoth runs a test on a ledger of each database.
func onBoth(t *testing.T, test func(w *world)) {
	t.Helper()
	for name, url := range map[string]func(*testing.T) string{
		"SQLite":     func(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "ledger.db") },
		"PostgreSQL": func(t *testing.T) string { return postgrestest.Start(t).URL(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(&world{T: t, url: url(t), now: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)})
		})
	}
}

// open opens the ledger again, as another reconciler does.
func (w *world) open() (*access.Registry, *ledger.Store) {
	w.Helper()
	store, err := ledger.Open(w.Context(), w.url, ledger.Options{Now: w.Now})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := store.Close(); err != nil {
			w.Error(err)
		}
	})
	return access.New(access.Config{Store: store}), store
}

func (w *world) create(r *access.Registry, c sandbox.CreateToken) sandbox.CreatedToken {
	w.Helper()
	made, err := r.CreateToken(w.Context(), c)
	if err != nil {
		w.Fatal(err)
	}
	return made
}

func (w *world) wantAccepted(r *access.Registry, text sandbox.Secret, accepted bool) {
	w.Helper()
	token, err := r.Authenticate(w.Context(), access.HashOf(string(text)))
	if accepted && (err != nil || token.Name != "ops") || !accepted && sandbox.CodeOf(err) != sandbox.Unauthenticated {
		w.Errorf("the token is of %q: %v", token.Name, err)
	}
}

func TestATokenWorksOnEveryReconcilerAtOnceAndEndsWithinASecond(t *testing.T) {
	t.Parallel()
	onBoth(t, func(w *world) {
		here, _ := w.open()
		there, _ := w.open()
		made := w.create(here, sandbox.CreateToken{Name: "ops", Scopes: []sandbox.Scope{sandbox.ScopeAdmin}})
		w.wantAccepted(here, made.Text, true)
		w.wantAccepted(there, made.Text, true)
		if _, err := here.RevokeToken(w.Context(), "ops"); err != nil {
			w.Fatal(err)
		}
		w.wantAccepted(here, made.Text, false)
		w.pass(access.Staleness)
		w.wantAccepted(there, made.Text, false)
		w.wantAccepted(here, made.Text+"x", false)
		// The name is available again.
		again := w.create(here, sandbox.CreateToken{Name: "ops", Scopes: []sandbox.Scope{sandbox.ScopeRead}})
		w.wantAccepted(there, again.Text, true)
	})
}

func TestALedgerHoldsNoTokensText(t *testing.T) {
	t.Parallel()
	onBoth(t, func(w *world) {
		r, store := w.open()
		made := w.create(r, sandbox.CreateToken{Name: "ops", Scopes: []sandbox.Scope{sandbox.ScopeAdmin}})
		err := store.Read(w.Context(), func(tx *ledger.Tx) error {
			row, err := tokens.In(tx).Get(made.ID)
			if err == nil && (len(row.Hash) != 32 || strings.Contains(string(row.Hash), string(made.Text)) ||
				hex.EncodeToString(row.Hash) == string(made.Text)) {
				w.Errorf("the ledger has %x of the token", row.Hash)
			}
			return err
		})
		if err != nil {
			w.Error(err)
		}
	})
}

func TestUseOfATokenIsRecorded(t *testing.T) {
	t.Parallel()
	onBoth(t, func(w *world) {
		r, _ := w.open()
		made := w.create(r, sandbox.CreateToken{Name: "ops", Scopes: []sandbox.Scope{sandbox.ScopeAdmin}})
		w.pass(time.Hour)
		w.wantAccepted(r, made.Text, true)
		used := w.Now()
		w.pass(time.Minute)
		ended, end := context.WithCancel(w.Context())
		end()
		r.Run(ended) // records the remaining uses as it ends
		list, err := r.ListTokens(w.Context())
		if err != nil || len(list) != 1 || !list[0].LastUsedAt.Equal(used) {
			w.Errorf("%+v, %v; want it used at %s", list, err, used)
		}
	})
}

func TestRotationKeepsTheOldTokenForATimeOnly(t *testing.T) {
	t.Parallel()
	onBoth(t, func(w *world) {
		r, _ := w.open()
		first := w.create(r,
			sandbox.CreateToken{Name: "ops", Scopes: []sandbox.Scope{sandbox.ScopeAdmin}, Environments: []string{"a*"}})
		w.pass(time.Second)
		next, err := r.RotateToken(w.Context(), sandbox.RotateToken{Name: "ops", Overlap: sandbox.Duration(time.Hour)})
		if err != nil {
			w.Fatal(err)
		}
		if !next.ExpiresAt.IsZero() || !slices.Equal(next.Environments, first.Environments) ||
			!slices.Equal(next.Scopes, first.Scopes) {
			w.Errorf("after %+v comes %+v", first.Token, next.Token)
		}
		w.wantAccepted(r, first.Text, true)
		w.wantAccepted(r, next.Text, true)
		w.pass(time.Hour)
		w.wantAccepted(r, first.Text, false)
		w.wantAccepted(r, next.Text, true)
		last, err := r.RotateToken(w.Context(), sandbox.RotateToken{Name: "ops"})
		if err != nil {
			w.Fatal(err)
		}
		w.wantAccepted(r, next.Text, false)
		w.wantAccepted(r, last.Text, true)
	})
}

func TestALogInHoldsOnEveryReconcilerUntilItEnds(t *testing.T) {
	t.Parallel()
	onBoth(t, func(w *world) {
		here, store := w.open()
		there, _ := w.open()
		token := access.HashOf("a token")
		l := access.Login{Credential: token, User: "ann", Until: store.Now().Add(access.LoginLifetime)}
		id, err := here.LogIn(w.Context(), l)
		if err != nil {
			w.Fatal(err)
		}
		in := func(r *access.Registry, id string) bool {
			w.Helper()
			got, err := r.LoggedIn(w.Context(), id)
			if err != nil && sandbox.CodeOf(err) != sandbox.Unauthenticated || err == nil && (got.Credential != token || got.User != "ann") {
				w.Errorf("the log-in is of %+v, %v", got, err)
			}
			return err == nil
		}
		if !in(here, id) || !in(there, id) || in(here, id+"x") || in(here, "") ||
			in(here, strings.Split(id, ".")[0]) || in(here, strings.Split(id, ".")[0]+".Ym9i") {
			w.Error("the login is invalid, or another one is valid")
		}
		second, err := there.LogIn(w.Context(), l)
		if err != nil {
			w.Fatal(err)
		}
		if err := there.LogOut(w.Context(), id); err != nil {
			w.Error(err)
		}
		if in(here, id) || !in(here, second) {
			w.Error("logging out ended the wrong one")
		}
		w.pass(access.LoginLifetime)
		if in(here, second) {
			w.Error("it holds beyond its time")
		}
		err = store.Write(w.Context(), func(tx *ledger.Tx) error { return tokens.In(tx).DeleteExpiredLogins() })
		if err != nil {
			w.Error(err)
		}
		hash := access.HashOf(second)
		err = store.Read(w.Context(), func(tx *ledger.Tx) error {
			row, err := tokens.In(tx).LoginByHash(hash[:])
			if row != nil {
				w.Error("it is stored beyond its end")
			}
			return err
		})
		if err != nil {
			w.Error(err)
		}
	})
}
