package runtimes

import (
	"fmt"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// wontRun says why a container runtime did not run a command.
type wontRun struct {
	cause error
	found wire.Kernel // includes what the kernel lacks; empty if nothing started
}

func (w *wontRun) Error() string { return w.cause.Error() }

func (w *wontRun) Unwrap() error { return w.cause }

// gVisor reveals its version by the kernel that it reports, and itself by a constant date.
const (
	gvisorDate = "Sun Jan 10 15:06:54 PST 2016"
	// gvisorNeeded is the oldest release that was tested and works (gvisor.dev/gvisor v0.0.0-20260905035102-160fafc42237),
	// and gvisorKernel the kernel that it reports. Debian 12 has a build of 2022-12, which reports 4.4.0.
	gvisorNeeded = "release of September 2026"
	gvisorKernel = "4.19.0-gvisor"
)

func isGVisor(k wire.Kernel) bool { return strings.Contains(k.Version, gvisorDate) }

// advice says what is missing and what to do.
func (w *wontRun) advice() string {
	var calls []string
	var socket *wire.Missing
	for _, m := range w.found.Missing {
		if m.Kind == wire.MissingSocket {
			socket = &m
			continue
		}
		calls = append(calls, fmt.Sprintf("%s (%s)", m.What, m.Error))
	}
	switch {
	case len(calls) > 0 && isGVisor(w.found):
		return fmt.Sprintf("it is gVisor with kernel %s, which lacks %s; required is a %s or newer, which reports kernel "+
			"%s: install that, and add it to the engine's daemon.json", w.found.Release, strings.Join(calls, ", "),
			gvisorNeeded, gvisorKernel)
	case len(calls) > 0:
		return fmt.Sprintf("its kernel %s (%s) lacks %s: use another version of it",
			w.found.Release, w.found.Version, strings.Join(calls, ", "))
	case socket != nil:
		return fmt.Sprintf("in a sandbox on its kernel %s the channel's socket cannot be opened (%s): allow it to open "+
			"sockets "+
			"of the host; for gVisor add --host-uds=open to its runtimeArgs in the engine's daemon.json, and reload the engine",
			w.found.Release, socket.Error)
	}
	return w.cause.Error() + hint(w.cause.Error())
}

// hint says what to do about a runtime's error message.
func hint(complaint string) string {
	for _, h := range []struct{ part, hint string }{
		{"root network namespace", "it is too old for the host's kernel, which it considers to have no network " +
			"namespaces: install a " + gvisorNeeded + " or newer"},
		{"cgroup", "allow it to set control groups: add --systemd-cgroup to its runtimeArgs if the engine uses systemd for " +
			"them, or use a host with version 2"},
		{"platform", "add --platform=systrap to its runtimeArgs, or --platform=ptrace on older ones"},
		{"kvm", "give it /dev/kvm, or add --platform=systrap to its runtimeArgs"},
		{"fork/exec", "install it at the path in the engine's daemon.json"},
		{"not installed", "install it at the path in the engine's daemon.json"},
	} {
		if strings.Contains(strings.ToLower(complaint), h.part) {
			return "; " + h.hint
		}
	}
	return ""
}
