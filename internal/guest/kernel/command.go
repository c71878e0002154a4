// Package kernel reports the kernel that a container runtime gives a sandbox, and what process 1 needs and
// does not get.
package kernel

// Command is the guest's subcommand for Main. It needs no Linux, because the Docker executor names it wherever
// the provider runs.
const Command = "kernel"
