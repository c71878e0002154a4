// Package harness runs the parts of this repository as users do: the reconciler as a process, the Terraform CLI with
// the local build of the provider, and the docker client. Only the programs under scripts use it.
package harness
