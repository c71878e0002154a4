package daemon_test

import (
	"os"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/internal/servetest"
)

func TestMain(m *testing.M) {
	servetest.RunCommand()
	os.Exit(m.Run())
}
