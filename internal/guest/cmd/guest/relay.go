package main

import "github.com/sandbox-lease/terraform-provider-sandbox/internal/relay"

// runRelay is no part of a sandbox: it runs in a container of its own, between reconcilers and sandboxes.
func runRelay(args []string) {
	if err := relay.Run(args); err != nil {
		fatal("%v", err)
	}
}
