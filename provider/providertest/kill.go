package providertest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Kill selects the processes that KillWhen kills.
type Kill int

const (
	// Terraform alone. Its provider must end by itself.
	Terraform Kill = iota
	// Both is Terraform and its provider.
	Both
)

// KillWhen runs Terraform and kills it with SIGKILL once due returns true. It polls due every few milliseconds. It
// reports whether it killed Terraform before Terraform ended by itself, and what Terraform printed. The provider has
// ended when it returns.
func (c *CLI) KillWhen(what Kill, due func() bool, args ...string) (killed bool, printed string) {
	c.Helper()
	cmd := exec.CommandContext(c.Context(), terraformProgram(), args...)
	cmd.Dir, cmd.Env = c.Dir, append(os.Environ(), c.Env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Minute // a provider that keeps running may keep the outputs open
	if err := cmd.Start(); err != nil {
		c.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case err := <-ended:
			if err != nil {
				c.Fatalf("terraform %v: %v\n%s", args, err, &out)
			}
			return false, out.String()
		case <-poll.C:
			if !due() {
				continue
			}
			target := cmd.Process.Pid
			if what == Both {
				target = -target // the process group
			}
			err := syscall.Kill(target, syscall.SIGKILL)
			if err != nil && !errors.Is(err, syscall.ESRCH) {
				c.Fatal(err)
			}
			var exit *exec.ExitError
			if err := <-ended; errors.As(err, &exit) {
				status, ok := exit.Sys().(syscall.WaitStatus)
				killed = ok && status.Signaled()
			}
			c.awaitGroup(cmd.Process.Pid, poll)
			return killed, out.String()
		}
	}
}

// awaitGroup waits until a process group has ended.
func (c *CLI) awaitGroup(group int, poll *time.Ticker) {
	c.Helper()
	for end := time.Now().Add(2 * time.Minute); !errors.Is(syscall.Kill(-group, 0), syscall.ESRCH); <-poll.C {
		if time.Now().After(end) {
			c.Fatalf("two minutes after Terraform was killed, its provider (process group %d) has not ended", group)
		}
	}
}
