package reconciler

import (
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/output"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const mebibyte = 1 << 20

// KeptOutput limits the stored output of commands and recordings of sessions, in MiB per lease, per environment and for
// the whole ledger. Zero means the default.
type KeptOutput struct {
	Lease, Environment, Ledger int64
}

// validate checks that each limit has room for the output of one command. Errors: Invalid.
func (k KeptOutput) validate() error {
	for _, bound := range []struct {
		flag string
		mib  int64
	}{{"kept-output-lease", k.Lease}, {"kept-output-environment", k.Environment}, {"kept-output", k.Ledger}} {
		if bound.mib != 0 && bound.mib < output.MinKept/mebibyte {
			return sandbox.Errorf(sandbox.Invalid, "--%s must be at least %d MiB, the limit of one command, not %d",
				bound.flag, output.MinKept/mebibyte, bound.mib)
		}
	}
	return nil
}

func (k KeptOutput) bounds() output.Bounds {
	return output.Bounds{
		Lease:       k.Lease * mebibyte,
		Environment: k.Environment * mebibyte,
		Ledger:      k.Ledger * mebibyte,
	}
}
