package docker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/gateway"
)

// notOfGateways are the rules that a gateway does not keep, with a rule of its own in their place where
// that matters: it shares the CPU with the sandboxes that it serves, it comes back by itself, it is on the
// network that it is to lead to, and it runs our own program, which needs no bounds of files.
var notOfGateways = []string{"5.12", "5.15", "5.19", "5.30", "S.1"}

// gatewayRules are the rules for gateways: those of every container, and their own.
var gatewayRules = append(slices.DeleteFunc(slices.Clone(auditRules), func(r auditRule) bool { return slices.Contains(notOfGateways, r.number) }),
	auditRule{number: "G.1", title: "it runs the gateway's program alone", finding: notTheGateway},
	auditRule{number: "G.2", title: "it is on one network, which it leads to", finding: manyNetworks},
)

func notTheGateway(a audited) string {
	c := a.container
	if c.Path != gateway.Path || !strings.HasPrefix(c.Config.Image, "sandbox-"+c.Config.Labels[labelLedger]+"-gateway:") {
		return fmt.Sprintf("it runs %s of image %s", c.Path, c.Config.Image)
	}
	return ""
}

func manyNetworks(a audited) string {
	if n := len(a.networks()); n > 1 {
		return fmt.Sprintf("it is on %d networks", n)
	}
	return ""
}
