package helper_test

import (
	"context"
	"testing"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/channel"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/driver"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/helper"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// TestAVerifierIsNeverRunAsACommandLikeAnyOther checks the operation: a guest without verifiers would ignore an unknown
// field.
func TestAVerifierIsNeverRunAsACommandLikeAnyOther(t *testing.T) {
	var ops []channel.Op
	guests := helper.New(sandbox.Cloudflare, func(_ context.Context, _ driver.Handle, c helper.Call) (wire.Result, error) {
		ops = append(ops, c.Request.Op)
		return wire.Result{}, nil
	})
	r := sandbox.ExecRequest{Command: []string{"true"}, As: sandbox.AsVerifier, Timeout: sandbox.DefaultExecTimeout}
	if _, err := guests.Exec(t.Context(), driver.Handle{}, r); sandbox.CodeOf(err) != sandbox.Invalid || len(ops) > 0 {
		t.Errorf("a backend without verifiers: %v, %v", err, ops)
	}
	if _, err := guests.WithVerifiers().Exec(t.Context(), driver.Handle{}, r); err != nil || len(ops) != 1 ||
		ops[0] != channel.OpVerify {
		t.Errorf("a backend with verifiers: %v, %v", err, ops)
	}
}
