package backupfile_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(postgrestest.M(m)) }
