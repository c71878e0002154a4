// Package harness runs what this repository consists of, as its users do: the reconciler as a
// process, the Terraform CLI with the local build of the provider, the docker client. The programs
// under scripts and nothing else use it.
package harness
