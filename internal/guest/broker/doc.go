// Package broker speaks to the reconciler for process 1: it carries out what comes over the channel. Commands are the
// keeper's, to which it passes them resolved; files it works on itself, with the sandbox's file-system identity.
//
// It may end at any moment. The keeper starts it again, and knows the commands and which operations were carried out.
package broker
