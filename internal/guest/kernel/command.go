// Package kernel reports the kernel that a container runtime gives a sandbox, and which requirements of process 1 it
// lacks.
package kernel

// Command is the guest's subcommand for Main. This file builds on every system, because the Docker executor names the
// command wherever the provider runs.
const Command = "kernel"
