package cli

import (
	"slices"
	"strings"
	"testing"
)

func TestOldFormsAreTodays(t *testing.T) {
	t.Parallel()
	for old, want := range map[string]struct{ now, hint string }{
		"reconciler leases --status active":           {"lease list --status active", "reconciler leases"},
		"reconciler leases acquire did:a b --no-wait": {"lease create did:a b --no-wait", "reconciler leases acquire"},
		"reconciler leases --url U release x":         {"lease release --url U x", "reconciler leases release"},
		"reconciler leases acquire-batch b":           {"lease create-batch b", "reconciler leases acquire-batch"},
		"reconciler environments -o json":             {"env list -o json", "reconciler environments"},
		"reconciler environments reopen b":            {"env reopen b", "reconciler environments reopen"},
		"reconciler execs x":                          {"command list x", "reconciler execs"},
		"reconciler execs logs x y -f":                {"command logs x y -f", "reconciler execs logs"},
		"reconciler sessions create x":                {"session create x", "reconciler sessions"},
		"reconciler files --generation 2 read x y":    {"file --generation 2 read x y", "reconciler files"},
		"reconciler exec x -- reconciler leases":      {"exec x -- reconciler leases", "reconciler exec"},
		"reconciler serve --config f":                 {"serve --config f", "reconciler serve"},
		"reconciler":                                  {"", "reconciler"},
		"costs --group-by day":                        {"cost --group-by day", "costs"},
		"lease list":                                  {"lease list", ""},
		"exec leases -- ls":                           {"exec leases -- ls", ""},
		"run reconciler -- costs":                     {"run reconciler -- costs", ""},
		"--help":                                      {"--help", ""},
		"":                                            {"", ""},
	} {
		now, hint := modern(strings.Fields(old))
		if !slices.Equal(now, strings.Fields(want.now)) || hint != want.hint {
			t.Errorf("%q is %q with the hint %q, want %q and %q", old, now, hint, want.now, want.hint)
		}
	}
}

// TestOldFormsNameCommands: each old form leads to a command.
func TestOldFormsNameCommands(t *testing.T) {
	t.Parallel()
	root := New(Config{})
	for old, now := range oldForms {
		words := strings.Fields(now)
		if cmd, rest, err := root.Find(words); err != nil || len(rest) > 0 || cmd == root {
			t.Errorf("%s leads to %s: %v", old, now, err)
		}
		if cmd, _, err := root.Find(strings.Fields(old)); err == nil && cmd != root {
			t.Errorf("%s is a command of today", old)
		}
	}
}
