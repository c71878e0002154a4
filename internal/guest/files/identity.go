//go:build linux

package files

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/identity"
)

// Identity is the owner of new files, and the user for the kernel's access checks.
type Identity struct {
	UID, GID int
	// All means that it may read all files, whatever their modes. The process needs CAP_DAC_OVERRIDE.
	All bool
}

// Worker works on the files of one sandbox. It is a value without state.
type Worker struct {
	identity *Identity // nil: the process's own
	base     string    // the directory used as /, "" for / itself
	space    *Space    // nil: no limit
}

// New returns a Worker with a file-system identity. The process needs CAP_SETUID and CAP_SETGID.
func New(id Identity) Worker { return Worker{identity: &id} }

// Within returns a Worker that adds to the disk what a space allows.
func (w Worker) Within(s *Space) Worker {
	w.space = s
	return w
}

// do runs work with the identity and returns its error.
func (w Worker) do(work func() error) error {
	if w.identity == nil {
		return work()
	}
	done := make(chan error, 1)
	go onThread(func() {
		if err := w.identity.take(); err != nil {
			done <- err
			return
		}
		done <- work()
	})
	return <-done
}

// onThread calls work on a thread that ends afterwards. It never uses the first thread, which cannot end: parent-death
// signals and the kernel's view of the process depend on it.
func onThread(work func()) {
	runtime.LockOSThread() // without an unlock: the runtime ends the thread with the goroutine
	if unix.Gettid() != unix.Getpid() {
		work()
		return
	}
	defer runtime.UnlockOSThread()
	done := make(chan struct{})
	go func() { // on another thread, because this one is locked
		defer close(done)
		onThread(work)
	}()
	<-done
}

// take gives the identity to the calling thread permanently, and drops all capabilities that the identity
// does not need. It fails unless the kernel confirms each step.
func (id Identity) take() error {
	if id.UID < 0 || id.GID < 0 || id.UID >= noID || id.GID >= noID || id.UID == unix.Geteuid() {
		return fmt.Errorf("take the identity %d:%d: it is not valid for a sandbox", id.UID, id.GID)
	}
	if err := unix.Setgroups(nil); err != nil { // only for this thread, unlike package syscall's
		return fmt.Errorf("leave the supplementary groups: %w", err)
	}
	groups, err := unix.Getgroups()
	if err != nil {
		return fmt.Errorf("read the supplementary groups: %w", err)
	}
	if len(groups) != 0 {
		return fmt.Errorf("leave the supplementary groups: %v are left", groups)
	}
	if err := identity.Take(id.UID, id.GID); err != nil {
		return err
	}
	if id.All {
		return keepCapabilities(1 << unix.CAP_DAC_OVERRIDE)
	}
	return keepCapabilities(0)
}

// keepCapabilities drops all other capabilities of the calling thread.
func keepCapabilities(kept uint32) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	want, left := [2]unix.CapUserData{{Effective: kept, Permitted: kept}}, [2]unix.CapUserData{}
	if err := unix.Capset(&header, &want[0]); err != nil {
		return fmt.Errorf("drop the capabilities: %w", err)
	}
	if err := unix.Capget(&header, &left[0]); err != nil {
		return fmt.Errorf("read the capabilities: %w", err)
	}
	if left != want {
		return fmt.Errorf("drop the capabilities: %v are left", left)
	}
	return nil
}

// noID is the id that means "none" to the kernel, both as a signed and as an unsigned number of 32 bits.
const noID = 1<<31 - 1
