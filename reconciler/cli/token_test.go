package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/servicetest/inprocess"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestTheFirstTokenIsMadeInTheLedgerItself(t *testing.T) {
	t.Parallel()
	w := &world{T: t}
	url := inprocess.SQLite(t)
	made := run(t.Context(), "", "token", "create", "ops", "--scope", "admin", "--ledger", url)
	w.want(made, exit.Done, "Token ops (tok_", "admin, all environments, valid until it is revoked")
	if text := strings.TrimSpace(made.out); !strings.HasPrefix(text, "sbl_") || strings.ContainsAny(text, " \n") {
		t.Errorf("the output is %q, not a token alone", made.out)
	}
	w.want(run(t.Context(), "", "token", "create", "ops", "--scope", "read", "--ledger", url), exit.Failed,
		"the name has a live token")
	w.want(run(t.Context(), "", "token", "create", "x", "--ledger", url), exit.Usage, "; --scope: must name at least one")
	w.want(run(t.Context(), "", "token", "create", "x", "--scope", "root", "--ledger", url), exit.Usage,
		`"root" must be one of`)
	w.want(run(t.Context(), "", "token", "rotate", "ops", "--overlap", "1h", "--ledger", url), exit.Done, "sbl_")
	list := run(t.Context(), "", "token", "list", "--ledger", url, "--output", "json")
	var page wire.TokenPage
	if err := json.Unmarshal([]byte(list.out), &page); err != nil || len(page.Tokens) != 2 ||
		!strings.HasPrefix(page.Tokens[0].CreatedBy, "ledger:") {
		t.Errorf("%v: %s", err, list.out)
	}
	w.want(run(t.Context(), "", "token", "revoke", page.Tokens[1].ID, "--ledger", url), exit.Done, page.Tokens[1].ID)
	if r := run(t.Context(), "", "token", "list", "--ledger", url); strings.Contains(r.out, page.Tokens[1].ID) ||
		!strings.Contains(r.out, page.Tokens[0].ID) {
		t.Errorf("the list of live tokens is\n%s", r.out)
	}
	w.want(run(t.Context(), "", "token", "list", "--all", "--ledger", url), exit.Done,
		page.Tokens[0].ID, page.Tokens[1].ID)
	w.want(run(t.Context(), "", "token", "revoke", "nobody", "--ledger", url), exit.Failed, "no token nobody")
}

func TestATokensCeilingIsGivenShownAndReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	create := func(args ...string) result {
		return w.run(append([]string{"token", "create", "team-b", "--scope", "admin", "--environment", "team-b-*"},
			args...)...)
	}
	for argument, problem := range map[string]string{
		"memory=8192":    "memory: is an unknown field; did you mean memory_mb?",
		"memory_mb=much": "memory_mb",
		"memory_mb=-1":   "must not be negative",
		"network=wide":   "must be none, restricted or full",
		"root,root":      "sets root twice",
	} {
		w.want(create("--ceiling", argument), exit.Usage, problem)
	}
	w.want(w.run("token", "create", "ops", "--scope", "admin", "--ceiling", "root"), exit.Usage,
		"ceiling: requires a token with environments")
	w.want(create("--ceiling", "memory_mb=8192,network=full,root", "--ceiling", "runtimes=runsc",
		"--ceiling", "runtimes=kata"), exit.Done, "sbl_")
	w.want(w.run("token", "list", "-o", "wide"), exit.Done, "CEILING",
		"memory_mb=8192,network=full,root,runtimes=runsc,runtimes=kata")
	w.Pass(time.Second)
	w.want(w.run("token", "rotate", "team-b", "--overlap", "0"), exit.Done, "sbl_")
	w.want(w.run("token", "list", "-o", "wide"), exit.Done, "memory_mb=8192,network=full,root,runtimes=runsc,runtimes=kata")
	w.Pass(time.Second)
	w.want(w.run("token", "rotate", "team-b", "--overlap", "0", "--ceiling", "leases=5"), exit.Done, "sbl_")
	if list := w.run("token", "list", "-o", "wide"); !strings.Contains(list.out, "leases=5") || strings.Contains(list.out, "memory_mb") {
		t.Errorf("the list is\n%s", list.out)
	}
}

func TestAnAdministratorManagesTokensOverTheReconciler(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	made := w.run("token", "create", "games", "--scope", "conditions", "--environment", "catan-*",
		"--expires-in", "2160h", "-o", "json")
	var token sandbox.CreatedToken
	if err := json.Unmarshal([]byte(made.out), &token); err != nil || token.ExpiresAt.IsZero() || token.Text == "" {
		t.Fatalf("%v: %s%s", err, made.out, made.err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token.Text), 0o600); err != nil {
		t.Fatal(err)
	}
	at := w.Now().Format(time.RFC3339)
	as := func(args ...string) result {
		return run(t.Context(), "", append(args, "--url", w.url, "--token-file", file)...)
	}
	w.want(as("lease", "list"), exit.Failed, "token games has the scope conditions, but the request needs read")
	w.want(as("send", "--type", "game.finished", "--environment", "catan-9", "--timestamp", at), exit.Done, "unmatched")
	w.want(as("send", "--type", "game.finished", "--environment", "rpg-1", "--timestamp", at), exit.Failed,
		"may not use environment rpg-1")
	w.want(w.run("token", "list", "-o", "wide"), exit.Done, "games", "conditions", "catan-*")
	w.want(w.run("token", "rotate", "games", "--overlap", "0"), exit.Done, "sbl_")
	w.want(as("send", "--type", "game.finished", "--environment", "catan-9", "--timestamp", at), exit.Failed,
		"rejects the token", "expired")
	limited := w.run("token", "create", "team", "--scope", "read", "--environment", "catan-*")
	if err := os.WriteFile(file, []byte(limited.out), 0o600); err != nil {
		t.Fatal(err)
	}
	w.want(as("lease", "list"), exit.Failed, "token team is limited to the environments catan-*",
		"; --environment: must be set to one of them")
	w.want(w.run("token", "revoke", "games"), exit.Done, "games")
	w.want(w.run("events", "--type", "token.*", "-o", "wide"), exit.Done, "token.created", "token.rotated", "token.revoked",
		"by token:default from 127.0.0.1")
}
