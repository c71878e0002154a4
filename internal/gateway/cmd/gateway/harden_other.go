//go:build !linux

package main

// harden does nothing: the gateway only runs on Linux.
func harden() error { return nil }
