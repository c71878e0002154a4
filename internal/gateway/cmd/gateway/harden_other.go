//go:build !linux

package main

// harden does nothing: the gateway runs on Linux only.
func harden() error { return nil }
