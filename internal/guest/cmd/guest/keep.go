//go:build linux

package main

import (
	"time"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/broker"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/deadline"
	"github.com/sandbox-lease/terraform-provider-sandbox/internal/guest/keeper"
)

// runKeeper runs process 1 or its broker.
func runKeeper(name string, cfg keeper.Config, ends string, ending time.Time) {
	var err error
	if name == "broker" {
		err = broker.Run(broker.Config{
			UID: cfg.UID, GID: cfg.GID, OwnUID: cfg.OwnUID, AllowRoot: cfg.AllowRoot,
			Life: cfg.Life, Channel: cfg.Channel, Egress: cfg.Egress, Port: cfg.Port != 0,
		})
	} else if cfg.Ends, err = deadline.Parse(ends, ending); err == nil {
		err = keeper.Run(cfg)
	}
	if err != nil {
		fatal("%s: %v", name, err)
	}
}
