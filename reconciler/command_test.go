package reconciler_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/sandbox"
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler"
)

func TestTooShortCleanupTTLIsRefusedBeforeAnythingIsOpened(t *testing.T) {
	t.Parallel()
	for _, ttl := range []string{"0s", "59m59s", "-1h"} {
		cmd := reconciler.NewServeCommand("test")
		cmd.SetArgs([]string{"--cleanup-ttl", ttl, "--ledger", "sqlite:///nowhere/ledger.db"})
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		err := cmd.ExecuteContext(t.Context())
		if sandbox.CodeOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), "--cleanup-ttl") || !strings.Contains(err.Error(), "at least 1h0m0s") {
			t.Errorf("%s: %v", ttl, err)
		}
	}
	err := reconciler.Serve(t.Context(), reconciler.Config{CleanupTTL: time.Minute}, nil)
	if sandbox.CodeOf(err) != sandbox.Invalid {
		t.Errorf("without the command: %v", err)
	}
}
