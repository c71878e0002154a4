package cli_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/exit"
)

func TestShellsCompleteIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game(time.Second)
	at := []string{"--url", w.url, "--token-file", w.tokenFile}
	for line, want := range map[string]string{
		"lease get ":                 "did:plc:ann::catan-7",
		"exec did:plc:a":             "did:plc:ann::catan-7",
		"exec did:plc:b":             "",
		"env get ":                   "catan-7",
		"env apply c":                "catan-7",
		"run ":                       "catan-7",
		"lease create did:plc:bob ":  "catan-7",
		"lease create ":              "",
		"cost --environment ":        "catan-7",
		"events --lease ":            "did:plc:ann::catan-7",
		"lease list --status act":    "active",
		"lease list --output ya":     "yaml",
		"env apply x --network full": "full",
	} {
		words := strings.Split(line, " ")
		args := append([]string{"__complete"}, words[0])
		args = append(append(args, at...), words[1:]...)
		r := run(t.Context(), "", args...)
		var got []string
		for l := range strings.Lines(r.out) {
			if l = strings.TrimSpace(l); l != "" && l[0] != ':' && strings.HasPrefix(l, words[len(words)-1]) {
				got = append(got, l)
			}
		}
		if r.code != exit.Done || strings.Join(got, " ") != want {
			t.Errorf("%q offers %q, want %q\n%s", line, got, want, r.err)
		}
	}
	words := run(t.Context(), "", "__complete", "le")
	if !slices.Contains(strings.Fields(words.out), "lease") {
		t.Errorf("le offers %s", words.out)
	}
}

func TestCompletionSaysNothingWhenTheReconcilerIsAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	began := time.Now()
	r := run(t.Context(), "", "__complete", "lease", "get", "--url", "http://127.0.0.1:1", "--token-file", w.tokenFile, "")
	if r.code != exit.Done || !strings.HasPrefix(r.out, ":") {
		t.Errorf("it ends with %d and prints %q", r.code, r.out)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it takes %s", took)
	}
	if r := run(t.Context(), "", "__complete", "lease", "get", ""); r.code != exit.Done || !strings.HasPrefix(r.out, ":") {
		t.Errorf("without a URL it ends with %d and prints %q", r.code, r.out)
	}
}
