package daemon

import (
	"log/slog"

	systemd "github.com/coreos/go-systemd/v22/daemon"
)

// serviceManager sends the status of this program to the service manager that started it, by sd_notify(3). Without
// one, it sends nothing.
type serviceManager struct{ log *slog.Logger }

// ready reports that the program serves requests.
func (m serviceManager) ready(address string) {
	m.notify(systemd.SdNotifyReady + "\nSTATUS=Serving on " + address)
}

// stopping reports that the program shuts down.
func (m serviceManager) stopping() { m.notify(systemd.SdNotifyStopping) }

func (m serviceManager) notify(state string) {
	if _, err := systemd.SdNotify(false, state); err != nil {
		m.log.Warn("reconciler: notifying the service manager", "state", state, "error", err)
	}
}
