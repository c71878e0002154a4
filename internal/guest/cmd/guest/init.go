//go:build linux

package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/deadline"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/egress"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/lease"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/proc"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/threads"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/wire"
)

const (
	// exitDeadline is the exit code of a sandbox that reached its deadline, exitStopped of one that was stopped.
	exitDeadline = 124
	exitStopped  = 143
	// stopGrace is what programs get of the ten seconds that the engine grants to stop.
	stopGrace = 8 * time.Second

	configFile = "/workspace/config.json"
	// readyName is the name that process 1 takes once commands may run; it fits the 15 bytes of comm.
	readyName = "sandbox-ready"
	// leasedName is the name that it takes once it has taken its lease over.
	leasedName = "sandbox-leased"
)

// runInit is process 1. It never returns. The kernel protects it from SIGKILL and SIGSTOP sent
// from inside, and non-dumpable it cannot be traced, so sandboxed code can make it end early but
// never late.
func runInit(ends wire.Ends, config, forward string, pooled bool, diskBytes int64) {
	runtime.LockOSThread() // the main thread's name is the process's
	harden()
	signal.Ignore(unix.SIGCHLD) // the kernel reaps what is left to process 1
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGTERM, unix.SIGINT)
	now, err := deadline.ReadClocks()
	if err != nil {
		fatal("%v", err)
	}
	timer, err := deadline.Arm(now.Left(ends), func() { os.Exit(exitDeadline) })
	if err != nil {
		fatal("%v", err)
	}
	if err := restoreModes(modes); err != nil {
		fatal("%v", err)
	}
	if err := writeConfig(config); err != nil {
		fatal("write %s: %v", configFile, err)
	}
	spare := 4
	if forward != "" {
		spare = 6 // what is forwarded takes some for a moment
	}
	threads.Spare(spare)
	if forward != "" {
		if err := egress.Forward(forward); err != nil {
			fatal("forward to the gateway: %v", err)
		}
	}
	if err := startKeeping(); err != nil {
		fatal("keep commands: %v", err)
	}
	if diskBytes > 0 {
		threads.Spare(spare + 1)
		go watchDisk(diskBytes) // ends with the process
	}
	become(readyName)
	if !pooled || awaitLease(stop, timer, ends) {
		<-stop
	}
	stopAll()
	os.Exit(exitStopped)
}

// writeConfig writes config.json at the first start; a later start finds it.
func writeConfig(config string) error {
	if config == "" {
		return nil
	}
	f, err := os.OpenFile(configFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := f.WriteString(config); err != nil {
		return errors.Join(err, f.Close(), os.Remove(configFile))
	}
	return f.Close()
}

func become(name string) {
	if err := setName(name); err != nil {
		fatal("become %s: %v", name, err)
	}
}

func setName(name string) error {
	b := append([]byte(name), 0)
	return unix.Prctl(unix.PR_SET_NAME, bytePointer(b), 0, 0, 0)
}

// awaitReady returns once process 1 is ready: its deadline is armed and config.json is written, and a
// sandbox of a pool knows whose it is if it has been told.
func awaitReady() bool {
	_, err := os.Stat(lease.File)
	told := err == nil
	for limit := time.Now().Add(5 * time.Second); time.Now().Before(limit); time.Sleep(2 * time.Millisecond) {
		b, err := os.ReadFile("/proc/1/comm")
		if name := string(bytes.TrimSpace(b)); err == nil && (name == leasedName || name == readyName && !told) {
			return true
		}
	}
	return false
}

// stopAll asks every process to end and waits until all have, or the grace is over.
func stopAll() {
	if err := unix.Kill(-1, syscall.SIGTERM); err != nil {
		return // nobody is left
	}
	for limit := time.Now().Add(stopGrace); time.Now().Before(limit); time.Sleep(20 * time.Millisecond) {
		if len(proc.All().Except(1)) == 0 {
			return
		}
	}
}
