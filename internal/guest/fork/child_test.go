//go:build linux

package fork

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/testwait"
)

// starting returns a child that its supervisor has reported, and the end of the pipe that the command's process closes
// when it executes its program. A stopped process of this test stands in for the command's.
func starting(t *testing.T) (c *Child, failed, failedIn *os.File, command *exec.Cmd) {
	t.Helper()
	c, failed, failedIn, command, report := unreported(t)
	report()
	return c, failed, failedIn, command
}

// unreported is starting before the report, which report sends.
func unreported(t *testing.T) (c *Child, failed, failedIn *os.File, command *exec.Cmd, report func()) {
	t.Helper()
	command = exec.Command("/bin/sleep", "60")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	status, statusIn, err := socketPair()
	if err == nil {
		failed, failedIn, err = os.Pipe()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill() // a test may have ended it
		_ = command.Wait()
		for _, f := range []*os.File{status, statusIn, failed, failedIn} {
			_ = f.Close() // a test may have closed it
		}
	})
	c = &Child{status: status}
	stop(t, command.Process.Pid)
	return c, failed, failedIn, command, func() {
		p := &plan{}
		p.report.supervisor = int32(os.Getpid())
		if err := tell(int(statusIn.Fd()), p, reportPID, int32(command.Process.Pid)); err != 0 {
			t.Error(err)
		}
	}
}

// stop stops a child process of this test.
func stop(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Wait4(pid, nil, unix.WUNTRACED, nil); err != nil {
		t.Fatal(err)
	}
}

func TestACommandThatIsStoppedBeforeItsProgramIsContinued(t *testing.T) {
	c, failed, failedIn, command := starting(t)
	go func() { // it ends with the command
		var s unix.WaitStatus
		for {
			if _, err := unix.Wait4(command.Process.Pid, &s, unix.WCONTINUED, nil); err != nil || s.Continued() {
				_ = failedIn.Close() // as execve does
				return
			}
		}
	}()
	began := time.Now()
	if err := c.begin(failed); err != nil {
		t.Errorf("a command that was stopped once: %v", err)
	}
	if took := time.Since(began); took > limit {
		t.Errorf("it began after %s", took)
	}
	if c.PID != command.Process.Pid || c.Supervisor != os.Getpid() {
		t.Errorf("the processes are %+v", c)
	}
}

// The report may be late on a busy machine. The command runs all the same.
func TestAReportThatIsLateIsAwaited(t *testing.T) {
	c, failed, failedIn, command, report := unreported(t)
	if err := failedIn.Close(); err != nil { // as execve does
		t.Fatal(err)
	}
	reported := make(chan struct{})
	time.AfterFunc(limit+limit/2, func() {
		defer close(reported)
		report()
	})
	err := c.begin(failed)
	<-reported
	if err != nil || c.PID != command.Process.Pid {
		t.Errorf("a command that runs: %+v, %v", c, err)
	}
}

func TestACommandThatDoesNotReachItsProgramIsKilled(t *testing.T) {
	c, failed, _, command := starting(t)
	began := time.Now()
	err := c.begin(failed) // the program is never executed
	took := time.Since(began)
	if !errors.Is(err, ErrStopped) {
		t.Errorf("a command that never executes its program: %v", err)
	}
	if took < limit || took > 2*limit {
		t.Errorf("it was given up after %s", took)
	}
	var s unix.WaitStatus
	testwait.Poll(5*time.Second, func() bool {
		if _, err := unix.Wait4(command.Process.Pid, &s, unix.WNOHANG, nil); err != nil {
			t.Fatal(err)
		}
		return s.Signaled()
	})
	if s.Signal() != unix.SIGKILL {
		t.Errorf("it ended with %v", s)
	}
}
