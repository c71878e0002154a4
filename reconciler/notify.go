package reconciler

import (
	"log/slog"

	"github.com/coreos/go-systemd/v22/daemon"
)

// manager is the service manager that started this program, which is told how it stands by sd_notify(3). Without one,
// nothing is sent.
type manager struct{ log *slog.Logger }

// ready tells that requests are answered.
func (m manager) ready(address string) {
	m.tell(daemon.SdNotifyReady + "\nSTATUS=Serving on " + address)
}

// stopping tells that it ends.
func (m manager) stopping() { m.tell(daemon.SdNotifyStopping) }

func (m manager) tell(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		m.log.Warn("reconciler: telling the service manager", "state", state, "error", err)
	}
}
