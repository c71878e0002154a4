package cli

import (
	"io"
	"os"

	"github.com/sandbox-lease/terraform-provider-sandbox/sandbox"
)

// How a terminal shows a cell. All are of one length, which keeps columns aligned: a table counts them as text.
const (
	bold   = "\x1b[01m"
	plain  = "\x1b[39m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	red    = "\x1b[31m"
	end    = "\x1b[0m"
)

// colours are those of the words that say how something stands.
var colours = map[string]string{
	string(sandbox.LeaseActive):       green,
	string(sandbox.SandboxReady):      green,
	string(sandbox.EnvironmentOpen):   green,
	string(sandbox.DeliveryApplied):   green,
	string(sandbox.ProcessRunning):    green,
	result(sandbox.VerdictPass):       green,
	string(sandbox.LeasePending):      yellow,
	string(sandbox.LeaseExpired):      yellow,
	string(sandbox.SandboxDeleting):   yellow,
	string(sandbox.DeliveryStale):     yellow,
	string(sandbox.DeliveryUnmatched): yellow,
	string(sandbox.SandboxFailed):     red,
	string(sandbox.DriftVanished):     red,
	string(sandbox.DriftOutOfMemory):  red,
	string(sandbox.DriftOrphan):       red,
	string(sandbox.DriftChanged):      red,
	result(sandbox.VerdictFinding):    red,
}

// paint has a terminal show a cell in the colour of what it says.
func paint(cell string, isTitle bool) string {
	as, says := colours[cell]
	switch {
	case isTitle:
		as = bold
	case !says:
		as = plain
	}
	return as + cell + end
}

// inColour reports whether what is written there is shown in colour: on a terminal that can, unless NO_COLOR
// (https://no-color.org) is set.
func inColour(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
