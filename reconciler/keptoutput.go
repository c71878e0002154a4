package reconciler

import (
	"github.com/spf13/pflag"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/leasing"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

const mebibyte = 1 << 20

// KeptOutput bounds the output of commands and the recordings of sessions that are kept, in MiB. Zero means the default.
type KeptOutput struct {
	Lease, Environment, Ledger int64
}

func (k *KeptOutput) addFlags(f *pflag.FlagSet) {
	f.Int64Var(&k.Lease, "kept-output-lease", leasing.DefaultKeptLease/mebibyte, "`MiB` of output of commands and sessions that one lease keeps; beyond, the oldest is dropped")
	f.Int64Var(&k.Environment, "kept-output-environment", leasing.DefaultKeptEnvironment/mebibyte, "`MiB` of output that one environment keeps; beyond, the oldest is dropped")
	f.Int64Var(&k.Ledger, "kept-output", leasing.DefaultKeptLedger/mebibyte, "`MiB` of output that is kept altogether; beyond, the oldest is dropped")
}

// validate refuses bounds that one command could exceed. Errors: Invalid.
func (k KeptOutput) validate() error {
	for _, bound := range []struct {
		flag string
		mib  int64
	}{{"kept-output-lease", k.Lease}, {"kept-output-environment", k.Environment}, {"kept-output", k.Ledger}} {
		if bound.mib != 0 && bound.mib < leasing.MinKept/mebibyte {
			return sandbox.Errorf(sandbox.Invalid, "--%s must be at least %d MiB, which one command may keep, not %d", bound.flag, leasing.MinKept/mebibyte, bound.mib)
		}
	}
	return nil
}

func (k KeptOutput) bounds() leasing.OutputBounds {
	return leasing.OutputBounds{Lease: k.Lease * mebibyte, Environment: k.Environment * mebibyte, Ledger: k.Ledger * mebibyte}
}
