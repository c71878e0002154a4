package sandbox_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestMoneyIsWrittenExactly(t *testing.T) {
	t.Parallel()
	for amount, want := range map[sandbox.NanoUSD][2]string{
		0:                    {"0.00", "0.00"},
		1:                    {"0.000000001", "0.00"},
		-1:                   {"-0.000000001", "0.00"},
		15_610_000_000:       {"15.61", "15.61"},
		1_951_250_000:        {"1.95125", "1.95"},
		5_000_000:            {"0.005", "0.01"},
		-5_000_000:           {"-0.005", "-0.01"},
		-9223372036854775808: {"-9223372036.854775808", ""},
	} {
		if got := amount.String(); got != want[0] {
			t.Errorf("%d is written %s, want %s", int64(amount), got, want[0])
		}
		if want[1] != "" && amount.Cents() != want[1] {
			t.Errorf("%d in cents is %s, want %s", int64(amount), amount.Cents(), want[1])
		}
	}
	for _, text := range []string{"", "1e3", "1/2", "0.0000000001", "9223372037", "NaN", "$1", "0x1p1",
		strings.Repeat("9", 1<<20)} {
		var n sandbox.NanoUSD
		if err := n.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was read as %s", text, n)
		}
	}
}

func TestMoneyIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := sandbox.NanoUSD(rapid.Int64().Draw(t, "amount"))
		var back sandbox.NanoUSD
		if err := back.UnmarshalText([]byte(n.String())); err != nil || back != n {
			t.Fatalf("%d came back as %d, %v", int64(n), int64(back), err)
		}
	})
}

func TestPathsStayInTheirRoots(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"board": "/workspace/board", "/workspace": "/workspace", "/data/a/../b": "/data/b", "": "/workspace",
		"../etc/passwd": "", "/etc": "", "/workspaces": "", "/data/../etc": "", "a\x00b": "",
	} {
		got, err := sandbox.CleanPath(path)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v, want %q", path, got, err, want)
		}
	}
}

func TestLeaseIDsComeApartAsTheyWerePutTogether(t *testing.T) {
	t.Parallel()
	agent, environment, err := sandbox.ParseLeaseID(sandbox.LeaseID("did:web:example.com:ann", "catan-7"))
	if err != nil || agent != "did:web:example.com:ann" || environment != "catan-7" {
		t.Errorf("%q, %q, %v", agent, environment, err)
	}
	for _, id := range []string{
		"", "::", "did:plc:ann", "ann::catan", "did:plc:ann::", "did:plc:ann::Catan", "did:plc:a/b::catan",
	} {
		if _, _, err := sandbox.ParseLeaseID(id); sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("%q: %v", id, err)
		}
	}
}
