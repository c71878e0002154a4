//go:build linux

package fork

import "golang.org/x/sys/unix"

// CopyMemory makes supervisors copy their memory for the processes of commands, as on a kernel where these could be
// traced.
func (s *Starter) CopyMemory() { s.cloning = uintptr(unix.SIGCHLD) }
