package main

import "golang.org/x/sys/unix"

// harden keeps the keys, which are in memory, out of core dumps and away from debuggers.
func harden() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}
