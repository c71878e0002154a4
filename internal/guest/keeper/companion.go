//go:build linux

package keeper

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/output"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

const (
	// exitUnknown is the exit code of a companion whose program could not run.
	exitUnknown = 125
	// lastWords limits how much of its program's output a companion's log repeats, in bytes.
	lastWords = 4 << 10
)

// endWith ends a companion with its program. The engine keeps the exit code and, in the container's log, the end of
// the program's output: both outlive this process. The broker gets time to send the result.
func (p *process) endWith(c *command, r wire.Result) {
	if c.log != nil {
		_, _ = os.Stderr.Write(append([]byte(guest.LastWords), tailOf(c.log.File)...)) // there is no place to report it
	}
	for limit := time.Now().Add(deliverTime); time.Now().Before(limit) && p.keeper.attached(); {
		time.Sleep(5 * time.Millisecond)
	}
	code := r.ExitCode
	if r.Problem != "" {
		fmt.Fprintln(os.Stderr, "keeper: run the companion's program:", r.Message)
		code = exitUnknown
	}
	if pid := int(p.keeper.broker.Load()); pid > 0 {
		_ = unix.Kill(pid, unix.SIGKILL) // otherwise it would log that this process has ended
	}
	os.Exit(code)
}

// tailOf returns the end of a log, nil if it cannot be read.
func tailOf(log *os.File) []byte {
	r, err := output.NewRingReader(log, 0)
	if err != nil {
		return nil
	}
	_, end, err := r.Bounds()
	if err != nil {
		return nil
	}
	r.Next = max(end-lastWords, 0)
	if err := r.Begin(); err != nil {
		return nil
	}
	var tail []byte
	for r.Next < end {
		b, skipped, err := r.Read()
		if err != nil || !skipped && len(b) == 0 {
			break
		}
		tail = append(tail, b...)
	}
	return tail
}
