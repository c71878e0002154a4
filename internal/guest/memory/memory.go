// Package memory gives memory back to the kernel: what the guest holds counts against the sandbox's own limit.
package memory

import (
	"runtime/debug"
	"time"
)

// idle is how long after the last work memory is given back.
const idle = time.Second

// Tidier gives memory back once its program was busy and then is idle.
type Tidier struct{ timer *time.Timer }

// NewTidier returns a Tidier of a program that is busy.
func NewTidier() *Tidier { return &Tidier{time.AfterFunc(idle, debug.FreeOSMemory)} }

// Busy says that the program works.
func (t *Tidier) Busy() { t.timer.Reset(idle) }
