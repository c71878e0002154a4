//go:build linux

package kernel

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/deadline"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/identity"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

// dialLimit limits the attempt to open a socket.
const dialLimit = 2 * time.Second

// Main writes a wire.Kernel as JSON. With -needs it also checks the requirements, as root with process 1's
// capabilities.
func Main(args []string, out io.Writer) error {
	flags := flag.NewFlagSet(Command, flag.ContinueOnError)
	needs := flags.Bool("needs", false, "check what process 1 needs")
	socket := flags.String("socket", "", "socket that process 1 must be able to open")
	if err := flags.Parse(args); err != nil {
		return err
	}
	k, err := describe()
	if err == nil && *needs {
		k.Missing = missing(*socket)
	}
	if err == nil {
		err = json.NewEncoder(out).Encode(k)
	}
	return err
}

func describe() (wire.Kernel, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return wire.Kernel{}, fmt.Errorf("read the kernel's version: %w", err)
	}
	return wire.Kernel{Release: unix.ByteSliceToString(u.Release[:]), Version: unix.ByteSliceToString(u.Version[:])}, nil
}

// missing tries each requirement and returns those that fail.
func missing(socket string) (m []wire.Missing) {
	for _, need := range []struct {
		kind, what string
		try        func() error
	}{
		{wire.MissingCall, "ambient capabilities (PR_CAP_AMBIENT)", ambient},
		{wire.MissingCall, "subreapers (PR_SET_CHILD_SUBREAPER)", subreaper},
		{wire.MissingCall, "clocks that include suspend", clocks},
		{wire.MissingCall, "separate users for threads", threadUser},
		{wire.MissingCall, "programs as another user", otherUser},
		{wire.MissingSocket, socket, func() error { return open(socket) }},
	} {
		if err := need.try(); err != nil {
			m = append(m, wire.Missing{Kind: need.kind, What: need.what, Error: err.Error()})
		}
	}
	return m
}

func ambient() error { return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) }

func subreaper() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

func clocks() error {
	_, err := deadline.ReadClocks()
	return err
}

func threadUser() error {
	return identity.Do(guest.KeeperID, guest.KeeperID, func() error { return nil })
}

// otherUser runs this program as process 1's user, which also runs the broker.
func otherUser() error {
	cmd := exec.Command("/proc/self/exe", Command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: guest.KeeperID, Gid: guest.KeeperID}}
	said, err := cmd.CombinedOutput()
	if ended := (*exec.ExitError)(nil); errors.As(err, &ended) {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(said)))
	}
	return err
}

// open opens a socket, if one is named.
func open(socket string) error {
	if socket == "" {
		return nil
	}
	conn, err := (&net.Dialer{Timeout: dialLimit}).Dial("unix", socket)
	var call *os.SyscallError
	if errors.As(err, &call) {
		return call.Err
	}
	if err != nil {
		return err
	}
	return conn.Close()
}
