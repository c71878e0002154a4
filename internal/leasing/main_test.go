package leasing_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/ledger/postgrestest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "rapid.checks" })
	if !set && os.Getenv("SANDBOX_TEST_LONG") == "" {
		if err := flag.Set("rapid.checks", "8"); err != nil { // each history syncs a real ledger to disk
			panic(err)
		}
	}
	goleak.VerifyTestMain(postgrestest.M(m))
}
