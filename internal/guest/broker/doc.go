// Package broker talks to the reconciler for process 1: it carries out the requests of the channel. It
// resolves commands and passes them to the keeper. It works on files itself, with the sandbox's file-system
// identity.
//
// It may end at any time. The keeper restarts it, and knows the commands and the completed operations.
package broker
