package main

import "github.com/sandbox-lease/terraform-provider-sandbox/internal/relay"

// runRelay runs the relay, in a separate container between reconcilers and sandboxes.
func runRelay(args []string) {
	if err := relay.Run(args); err != nil {
		fatal("%v", err)
	}
}
