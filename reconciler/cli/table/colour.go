package table

import (
	"github.com/sandbox-lease/terraform-provider-sandbox/reconciler/cli/format"
	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// Escape sequences of a cell.
const (
	bold   = "\x1b[1m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	red    = "\x1b[31m"
	end    = "\x1b[0m"
)

// colours maps a status to its colour.
var colours = map[string]string{
	string(sandbox.LeaseActive):            green,
	string(sandbox.SandboxReady):           green,
	string(sandbox.EnvironmentOpen):        green,
	string(sandbox.DeliveryApplied):        green,
	string(sandbox.ProcessRunning):         green,
	format.Verdict(sandbox.VerdictPass):    green,
	string(sandbox.LeasePending):           yellow,
	string(sandbox.LeaseExpired):           yellow,
	string(sandbox.SandboxDeleting):        yellow,
	string(sandbox.DeliveryStale):          yellow,
	string(sandbox.DeliveryUnmatched):      yellow,
	string(sandbox.SandboxFailed):          red,
	string(sandbox.DriftVanished):          red,
	string(sandbox.DriftOutOfMemory):       red,
	string(sandbox.DriftOrphan):            red,
	string(sandbox.DriftChanged):           red,
	format.Verdict(sandbox.VerdictFinding): red,
}

// paint wraps a title or a status in the escape sequences of its colour.
func paint(cell string, isTitle bool) string {
	as, says := colours[cell]
	switch {
	case isTitle:
		as = bold
	case !says:
		return cell
	}
	return as + cell + end
}
