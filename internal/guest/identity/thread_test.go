//go:build linux

package identity

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAChangeWithoutEffectIsAnError(t *testing.T) {
	t.Parallel()
	never := func() error { return errors.New("asked for the effective id") }
	if err := change(7, func(int) (int, error) { return 3, nil }, never); err == nil ||
		!strings.Contains(err.Error(), "still 3") {
		t.Errorf("a change without effect: %v", err)
	}
	if err := change(7, func(int) (int, error) { return 0, unix.EPERM }, never); !errors.Is(err, unix.EPERM) {
		t.Errorf("a change that is refused: %v", err)
	}
}

// TestTheEffectiveUserIsChangedOfOneThread simulates a kernel without another identity for files.
func TestTheEffectiveUserIsChangedOfOneThread(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("changes its user: needs root")
	}
	const other = 12345
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // without an unlock, the thread ends with the goroutine
		err := change(other, func(int) (int, error) { return 0, unix.ENOSYS },
			func() error { return setEffective(unix.SYS_SETRESUID, other, unix.Geteuid) })
		if own, effective, saved := unix.Getresuid(); err == nil && (own != 0 || effective != other || saved != 0) {
			err = fmt.Errorf("the thread has the users %d, %d and %d", own, effective, saved)
		}
		if n, countErr := threadsAs("Uid:\t0\t12345\t0\t12345\n"); err == nil && (countErr != nil || n != 1) {
			err = fmt.Errorf("%d threads have the user: %w", n, countErr)
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// threadsAs counts the threads of this process whose status has a line.
func threadsAs(line string) (n int, err error) {
	tasks, err := filepath.Glob("/proc/self/task/*/status")
	for _, task := range tasks {
		if text, readErr := os.ReadFile(task); readErr == nil && strings.Contains(string(text), line) { // others may end
			n++
		}
	}
	return n, err
}
