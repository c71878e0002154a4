package leasing_test

import (
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/servicetest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/servicetest/inprocess"
)

// databases return the URLs of ledgers that do not exist yet.
var databases = map[string]func(t *testing.T) string{
	"SQLite":     inprocess.SQLite,
	"PostgreSQL": func(t *testing.T) string { return postgrestest.New(t) },
}

func TestServiceInProcess(t *testing.T) {
	t.Parallel()
	for name, fresh := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servicetest.Run(t, servicetest.Config{New: inprocess.NewOn(fresh)})
		})
	}
}
