package location_test

import (
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/location"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

func TestAURLForPeopleHoldsNoPassword(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"postgres://u:secret@host/db":                      "postgres://u:xxxxx@host/db",
		"postgres://host/db?password=secret&search_path=s": "postgres://host/db?password=xxxxx&search_path=s",
		"sqlite:///var/lib/sandbox/ledger.db":              "sqlite:///var/lib/sandbox/ledger.db",
		"postgres://u:secret@host:port/db":                 "(not a URL)",
	} {
		if got := location.Redact(url); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestURLsThatCannotBeUsedAreRefused(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "ledger.db", "sqlite://relative/path.db", "sqlite:relative.db", "sqlite:///x.db?mode=memory", "mysql://host/db",
		"://",
	} {
		if _, err := ledger.Open(t.Context(), url, ledger.Options{}); sandbox.CodeOf(err) != sandbox.Invalid {
			t.Errorf("%q: %v", url, err)
		}
	}
}
