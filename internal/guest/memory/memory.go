// Package memory returns memory to the kernel: the guest's memory counts against the sandbox's limit.
package memory

import (
	"runtime/debug"
	"time"
)

// idle is the time after the last work at which memory is returned.
const idle = time.Second

// Tidier returns memory when its program becomes idle.
type Tidier struct{ timer *time.Timer }

// NewTidier returns a Tidier for a busy program.
func NewTidier() *Tidier { return &Tidier{time.AfterFunc(idle, giveBack)} }

// giveBack collects twice: objects in a sync.Pool survive the first collection.
func giveBack() {
	debug.FreeOSMemory()
	debug.FreeOSMemory()
}

// Busy records that the program works.
func (t *Tidier) Busy() { t.timer.Reset(idle) }
